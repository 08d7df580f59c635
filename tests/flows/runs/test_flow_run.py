"""The name of a flow run, its task, and the one sentence at its end."""

from typing import Any

from overnight.flows.runs.flow_run import (
    failure_message,
    is_run_of_deployment,
    of_task,
    publish_message,
    search_message,
    stage,
    task_run_id,
    unchanged_message,
)
from overnight.tasks.errors import CheckFailed, InputError


def test_outside_of_a_flow_run_there_is_neither_a_deployment_nor_a_task() -> None:
    assert not is_run_of_deployment()
    assert (stage(), task_run_id(), of_task()) == ("plan", None, {})


RECEIPT: dict[str, Any] = {
    **{"partition": "2026-11-25", "limit_rows": None, "warnings": [], "seconds": 3.14},
    **{"rows_out": 200, "rows_filtered": 0, "rows_quarantined": 2, "finished_at": "2026-11-26T02:00:03+00:00"},
}


def test_a_run_says_its_counts_the_reasons_and_its_seconds() -> None:
    ended = "200 rows published, 2 quarantined (1 truncated PNG, 1 not an image), checks passed, 3.1 s"
    assert publish_message(RECEIPT, [("truncated PNG", 1), ("not an image", 1)]) == ended
    filtered = RECEIPT | {"rows_out": 1, "rows_quarantined": 0, "rows_filtered": 7, "warnings": ["a", "b"]}
    trusted = "Trust it: 2 rows published of 2 read; 2 checks passed, and no column drifted."
    assert publish_message(RECEIPT, [], trusted) == f"{trusted} 3.1 s"
    paid = RECEIPT | {"spent": {"answers": 200, "tokens": 5000, "cost": 1.5}}
    assert publish_message(paid, [], trusted) == f"{trusted} 3.1 s, 5,000 tokens, cost 1.5"
    assert publish_message(filtered, []) == "1 row published, 7 filtered, checks passed, 2 warnings, 3.1 s"
    sample = RECEIPT | {"rows_out": 5, "rows_quarantined": 0, "limit_rows": 5}
    assert publish_message(sample, []) == "sample of 5 rows, nothing published, checks passed, 3.1 s"


def test_a_run_with_nothing_to_do_says_why() -> None:
    expected = "is published and not stale, since 2026-11-26T02:00:03+00:00 (200 rows, 2 quarantined)"
    assert unchanged_message(RECEIPT, False) == f"nothing ran: 2026-11-25 {expected}"
    assert "is published without quarantined rows" in unchanged_message(RECEIPT | {"rows_quarantined": 0}, True)


def test_a_failed_run_says_the_stage_and_the_first_sentence() -> None:
    message = failure_message(InputError("expected files, found none.\nmore"))
    assert message == "failed in ingest: expected files, found none."
    several = CheckFailed("2 checks failed:\n  checks.min_rows: too few\n  checks.nulls: too many")
    assert failure_message(several) == "failed in write: 2 checks failed: checks.min_rows: too few"


def test_a_search_says_how_much_it_looked_at() -> None:
    result = {"matches": [{}, {}], "rows": 4000, "partitions": ["2026-11-24", "2026-11-25"], "seconds": 1.27}
    assert search_message(result) == "2 similar rows found in 4,000 rows of 2 partitions, 1.3 s"
    assert search_message(result | {"rows": 1, "partitions": ["all"]}).endswith("in 1 row of 1 partition, 1.3 s")
