"""Whole runs with receivers: a real block on a real Prefect server, a real webhook, and a file of OpenLineage."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import TooManyQuarantined
from tests import jobs
from tests import webhook as webhooks
from tests.flows.conftest import RunJob
from tests.prefect_api import ask

NASTY = "{</script><!channel> @here \\u202e"


def warnings(api: str) -> list[str]:
    """Return the newest warnings in the log of the server, once those of the run have arrived."""
    query = {"logs": {"level": {"ge_": 30}}, "sort": "TIMESTAMP_DESC", "limit": 20}
    for _ in range(50):
        lines = [str(line["message"]) for line in ask(api, "/logs/filter", query)]
        if any("notice not sent" in line for line in lines):
            return lines
        time.sleep(0.2)
    return []


@pytest.mark.slow
def test_a_run_is_told_to_a_block_and_a_webhook_and_neither_may_fail_it(
    prefect_api: str, run_job: RunJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": number}) for number in range(9)]
    (tmp_path / "in/a.jsonl").write_text("\n".join([*lines, NASTY]) + "\n")
    events = tmp_path / "events.jsonl"
    for name, value in {"TYPE": "file", "LOG_FILE_PATH": str(events), "APPEND": "true"}.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    with webhooks.webhook() as ops, webhooks.webhook() as own, webhooks.webhook() as dead:
        dead.status = 404
        monkeypatch.setenv("OWN_HOOK", own.url)
        monkeypatch.setenv("DEAD_HOOK", dead.url)
        notify: list[dict[str, Any]] = [
            {"on": ["published", "failed"], "webhook": "${DEAD_HOOK}"},
            {"on": ["published", "quarantined", "failed"], "block": webhooks.save_block("ops", ops.url)},
            {"on": ["failed"], "webhook": "${OWN_HOOK}"},
        ]
        source = {"kind": "jsonl", "path": f"{tmp_path}/in"}
        job = jobs.job(tmp_path, name="told", source=source, notify=notify, checks={"max_quarantined": 0.5})
        receipt = run_job(job)
        assert (receipt["status"], receipt["rows_quarantined"]) == ("published", 1)
        assert webhooks.SECRET not in json.dumps(receipt)
        with pytest.raises(TooManyQuarantined):
            run_job({**job, "checks": {"max_quarantined": 0.0}}, force=True)
    published, failed = ops.posts
    assert published["title"] == "told/all published, quarantined"
    assert "9 rows out" in published["text"]
    assert "/runs/flow-run/" in published["text"]
    assert failed["title"] == "told/all failed"
    [own_message] = own.posts
    assert (own_message["events"], own_message["status"]) == (["failed"], "failed")
    texts = json.dumps([*ops.posts, own_message], ensure_ascii=False)
    assert not any(bad in texts for bad in ("<", "@here", "\u202e"))
    assert dead.refused == 2
    log = "\n".join(warnings(prefect_api))
    assert "notice not sent: the webhook ${DEAD_HOOK} did not take the message: status 404" in log
    assert webhooks.SECRET not in log
    kinds = [json.loads(line)["eventType"] for line in events.read_text().splitlines()]
    assert kinds == ["START", "COMPLETE", "START", "FAIL"]
    assert json.loads(events.read_text().splitlines()[0])["run"]["facets"]["parent"]["job"]["name"].endswith("/told")
