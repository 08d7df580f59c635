"""The page of a run is gathered from its receipt, the ledger and one pass over the rows, and written as one file."""

from pathlib import Path

import pyarrow as pa
import pytest

from overnight.flows.report import plots
from overnight.flows.report.report import read_report, write_report
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.column_statistics import describe, summary
from tests.flows.report.runs import job_of, publish, receipt_of, write_quarantine

FAILED = ("a#1", "/in/a", "infer", "ValueError", "too bright: 3")


def rows(share: float) -> pa.Table:
    labels = ["cat" if number < 100 * share else "dog" for number in range(100)]
    ids = [f"a#{number}" for number in range(100)]
    scores = [number / 100 for number in range(100)]
    return pa.table({"row_id": ids, "label": ["cat"] * 100, "predicted_label": labels, "score": scores})


def published(folder: Path, day: str, share: float, **more: object) -> dict[str, object]:
    table = rows(share)
    receipt = receipt_of(day, summary(describe(table), ()), **more)
    return publish(folder, receipt, table, (FAILED,) * int(receipt["rows_quarantined"]))


def test_a_report_compares_a_partition_with_the_one_before(tmp_path: Path) -> None:
    published(tmp_path, "2026-01-08", 0.9)
    report = read_report(job_of(tmp_path), published(tmp_path, "2026-01-09", 0.5, rows_quarantined=2), "my job.yaml")
    assert report.previous
    assert report.previous["partition"] == "2026-01-08"
    assert report.verdict.level == "look"
    assert "drift in predicted_label" in report.verdict.sentence
    assert "fell from 90.0% to 50.0%" in report.verdict.sentence
    assert report.confusions == [(("cat", "dog"), 50)]
    titles = ["Random rows", "Least sure", "Most sure", "One per predicted_label"]
    assert [group.title for group in report.groups] == titles
    assert [(reason.count, len(cards)) for reason, cards in report.reasons] == [(2, 2)]
    assert ("Run it again", "overnight run 'my job.yaml' --partition 2026-01-09 --force") in report.commands


def test_the_histogram_of_a_column_counts_the_earlier_rows_too(tmp_path: Path) -> None:
    published(tmp_path, "2026-01-08", 0.9)
    report = read_report(job_of(tmp_path), published(tmp_path, "2026-01-09", 0.9))
    (column,) = [column for column in report.columns if column.name == "score"]
    assert column.counts is not None
    assert column.counts_before is not None
    assert column.counts.sum() == column.counts_before.sum() == 100


def test_rows_that_are_gone_leave_a_page_with_the_reason(tmp_path: Path) -> None:
    receipt = published(tmp_path, "2026-01-09", 0.9)
    (tmp_path / "out/date=2026-01-09/part.parquet").unlink()
    report = read_report(job_of(tmp_path), receipt)
    assert "FileNotFoundError" in report.rows_problem
    assert report.verdict.level == "trust"


def test_a_run_without_a_receipt_has_a_page_with_its_quarantine_and_how_to_resume(tmp_path: Path) -> None:
    failure = {"job": "daily", "partition": "2026-01-09", "status": "failed", "stage": "infer", "generation": "g"}
    failure |= {
        "error_type": "StageFailed",
        "error_message": "the model crashed",
        "failed_at": "2026-01-10T02:00:00.000Z",
    }
    write_quarantine(tmp_path / "out/_overnight/date=2026-01-09/failure-quarantine.parquet", (FAILED,))
    report = read_report(job_of(tmp_path), failure)
    assert report.verdict.level == "no"
    assert report.reasons[0][0].message == "too bright: 3"
    assert report.commands[0][1] == "overnight run JOB.yaml --partition 2026-01-09"


def test_the_page_is_one_file_with_tables_where_matplotlib_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "is_available", lambda: False)
    write_report(job_of(tmp_path), published(tmp_path, "2026-01-09", 0.9), Location(str(tmp_path / "report.html")))
    page = (tmp_path / "report.html").read_text()
    assert "<svg" not in page
    assert "Histogram as a table" in page
    assert "from 0.495" in page
