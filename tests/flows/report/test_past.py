"""What the ledger has beside a receipt: earlier receipts, quarantined rows, and the work of a run that failed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.flows.report import past
from overnight.flows.report.past import SHOWN_ROWS, group_reasons
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.storage.location import Location
from tests.flows.report.runs import job_of, publish, receipt_of, write_quarantine

FAILED = ("a", "/in/a", "infer", "ValueError", "too bright")
FAILURE = {"job": "daily", "partition": "2026-01-09", "status": "failed", "generation": "g", "attempt": "a-1"}


def test_a_run_is_compared_with_the_seven_partitions_before_it(tmp_path: Path) -> None:
    for day in range(1, 12):
        publish(tmp_path, receipt_of(f"2026-01-{day:02}"))
    receipts = past.earlier_receipts(job_of(tmp_path), receipt_of("2026-01-10"))
    assert [receipt["partition"] for receipt in receipts] == [f"2026-01-{day:02}" for day in range(9, 2, -1)]


def test_the_first_partition_is_compared_with_its_own_earlier_run(tmp_path: Path) -> None:
    for generation in ("g-1", "g-2", "g-3"):
        publish(tmp_path, receipt_of("2026-01-09", generation=generation))
    receipts = past.earlier_receipts(job_of(tmp_path), receipt_of("2026-01-09", generation="g-2"))
    assert [receipt["generation"] for receipt in receipts] == ["g-1"]


def test_a_sample_and_the_receipt_of_another_job_are_not_compared(tmp_path: Path) -> None:
    publish(tmp_path, receipt_of("2026-01-08", job="other"))
    assert past.earlier_receipts(job_of(tmp_path), receipt_of("2026-01-09")) == []
    publish(tmp_path, receipt_of("2026-01-07"))
    assert past.earlier_receipts(job_of(tmp_path), receipt_of("2026-01-09", limit_rows=5)) == []


def test_a_torn_receipt_is_not_compared(tmp_path: Path) -> None:
    for day in ("2026-01-07", "2026-01-08"):
        publish(tmp_path, receipt_of(day))
    (tmp_path / "out/_overnight/date=2026-01-08/receipt.json").write_text('{"job"')
    receipts = past.earlier_receipts(job_of(tmp_path), receipt_of("2026-01-09"))
    assert [receipt["partition"] for receipt in receipts] == ["2026-01-07"]


def test_quarantined_rows_come_from_the_publish_or_from_the_failure(tmp_path: Path) -> None:
    receipt = publish(tmp_path, receipt_of("2026-01-09"), failed=(FAILED, FAILED))
    write_quarantine(tmp_path / "out/_overnight/date=2026-01-09/failure-quarantine.parquet", (FAILED,))
    job = job_of(tmp_path)
    assert len(past.quarantined_rows(job, receipt)) == 2
    assert len(past.quarantined_rows(job, FAILURE)) == 1
    assert len(past.quarantined_rows(job, FAILURE | {"partition": "2026-01-01"})) == 0


def test_the_attempts_of_a_generation_are_found(tmp_path: Path) -> None:
    attempts = tmp_path / "out/_overnight/date=2026-01-09/generations/g/attempts"
    for name in ("20260101T000000-b", "20260101T010000-a"):
        (attempts / name).mkdir(parents=True)
        (attempts / name / "order").touch()
    job = job_of(tmp_path)
    assert past.attempt_names(job, FAILURE) == ["20260101T000000-b", "20260101T010000-a"]
    assert past.attempt_names(job, FAILURE | {"generation": "h"}) == ["a-1"]


def test_the_work_of_a_failed_run_is_counted_from_its_staged_parts(tmp_path: Path) -> None:
    (tmp_path / "in/date=2026-01-09").mkdir(parents=True)
    (tmp_path / "in/date=2026-01-09/a.csv").write_text("x\n" + "1\n" * 10)
    job, home = job_of(tmp_path), tmp_path / "out/_overnight/date=2026-01-09/generations/g"
    home.mkdir(parents=True)
    (home / "generation.json").write_text(json.dumps({"created_at": "2026-01-10T02:00:00.000Z"}))
    record: dict[str, Any] = FAILURE | {"failed_at": "2026-01-10T02:10:00.000Z"}
    assert "rows_in" not in past.with_work(job, record)

    take_manifest(Location(str(home / "manifest")), job.source, "2026-01-09")
    live = blocks.with_hidden(pa.table({"row_id": list("abc"), "x": [1, 2, 3]}), np.zeros(3, int), np.arange(3))
    bad = blocks.quarantined_block({"row_id": ["d"]}, 0, [3], "infer", [ValueError("no")])
    end = blocks.settled_block({}, 0, [10], blocks.END)
    ranges = pa.concat_tables([row_ranges.ranges_of(block) for block in (live, bad, end)])
    rows = live.select(["row_id", "x", "__unit", "__row"])
    stages = {"infer": {"seconds": 2.5, "rows": 3, "bytes": 24}}
    parts, errors = Location(str(home / "parts")), staged_parts.DETAILS.empty_table()
    staged_parts.write_part(parts, "a-1-000000", rows, errors, ranges, stages, "zstd")

    work = past.with_work(job, record)
    assert (work["rows_in"], work["rows_kept"], work["rows_quarantined"]) == (10, 4, 1)
    assert work["stages"]["infer"] == {"seconds": 2.5, "rows": 3, "bytes": 24}
    assert (work["started_at"], work["finished_at"]) == ("2026-01-10T02:00:00.000Z", "2026-01-10T02:10:00.000Z")
    times = {"rows": 2, "started_at": "2026-01-10T02:01:00.000Z", "finished_at": "2026-01-10T02:09:00.000Z"}
    timed = past.with_work(job, record | {"stages": {"infer": times}})["stages"]
    assert timed["infer"] == {"seconds": 2.5, "bytes": 24, **times}
    assert timed["write"] == {"seconds": 0.0, "rows": 0, "bytes": 0}


def row(message: str, row_id: str = "a.png", **more: str) -> dict[str, str]:
    return {"row_id": row_id, "uri": f"/in/{row_id}", "stage": "infer", "error_type": "ValueError"} | {
        "error_message": message,
        **more,
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("found 825 bytes", "found 1,024 bytes"),
        ("no digit in 'a.png'", 'no digit in "b.png"'),
        ("begins with b'\\x00'", "begins with b'abc'"),
        ("at 0x7f00aa", "at 0x10"),
        ("3.5e-05 is too small", "-2 is too small"),
        ("same\nline 1 of a trace", "same\nanother trace"),
    ],
)
def test_reasons_that_differ_in_values_are_one(first: str, second: str) -> None:
    (reason,) = group_reasons([row(first), row(second)])
    assert (reason.count, reason.message) == (2, first)


def test_names_of_the_row_itself_do_not_make_another_reason() -> None:
    rows = [row(f"cannot open /in/{name} ({name})", name) for name in ("a b.png", "c.png")]
    assert [reason.count for reason in group_reasons(rows)] == [2]


def test_another_stage_type_or_word_is_another_reason() -> None:
    rows = [
        row("too bright"),
        row("too dark"),
        row("too bright", stage="preprocess"),
        row("too bright", error_type="E"),
    ]
    assert [reason.count for reason in group_reasons(rows)] == [1, 1, 1, 1]


def test_the_most_frequent_reason_comes_first_with_a_few_rows() -> None:
    reasons = group_reasons([row("rare"), *(row(f"often {number}", f"{number}") for number in range(9))])
    assert [reason.count for reason in reasons] == [9, 1]
    assert [shown["row_id"] for shown in reasons[0].rows] == ["0", "1", "2", "3"]
    assert len(reasons[0].rows) == SHOWN_ROWS
