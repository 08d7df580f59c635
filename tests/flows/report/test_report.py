"""The page of a run is gathered from its receipt, the ledger and one pass over the rows, and written as one file."""

import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from prefect.logging import disable_run_logger

from overnight.flows.report.page import render
from overnight.flows.report.report import keep_report, read_report
from overnight.flows.runs.attempt import opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import StageFailed
from overnight.tasks.state.run import Run, write_json
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
    assert report.sample.confusions == [(("cat", "dog"), 50)]
    titles = ["Random rows", "Least sure", "Most sure", "One per predicted_label"]
    assert [group.title for group in report.groups] == titles
    assert [(reason.count, len(cards)) for reason, cards in report.reasons] == [(2, 2)]
    assert ("Run it again", "overnight run 'my job.yaml' --partition 2026-01-09 --force") in report.commands


def test_the_histogram_of_a_column_counts_the_earlier_rows_too(tmp_path: Path) -> None:
    published(tmp_path, "2026-01-08", 0.9)
    report = read_report(job_of(tmp_path), published(tmp_path, "2026-01-09", 0.9))
    (column,) = [column for column in report.columns if column.name == "score"]
    assert sum(bin.rows for bin in column.bins) == sum(bin.before or 0 for bin in column.bins) == 100


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


def test_a_histogram_is_drawn_and_is_a_table_too(tmp_path: Path) -> None:
    page = render(read_report(job_of(tmp_path), published(tmp_path, "2026-01-09", 0.9)))
    assert page.count("<svg") == 1
    assert "Histogram as a table" in page
    assert "from 0.495" in page


def pages(run: Run) -> list[Path]:
    return [Path(str(run.ledger / name)) for name in ("report.html", f"reports/{run.generation}.html")]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [(StageFailed("the model crashed", "infer"), "failed in infer"), (KeyboardInterrupt(), "cancelled in plan")],
)
def test_a_run_that_does_not_publish_leaves_its_page(tmp_path: Path, error: BaseException, sentence: str) -> None:
    job = job_of(tmp_path)
    run = describe_run(job, "2026-01-09")
    with disable_run_logger(), pytest.raises(type(error)), opened(job, run, False, file="a job.yaml") as run:  # noqa: PT012 - the body is the run
        samples = {"started_at": run.started_at, "seconds": [0.0, 0.001], "cpus_busy": [0.2, 0.9]}
        write_json(run.timeline, {"started_at": run.started_at, "stages": {}, "samples": samples})
        time.sleep(0.01)
        raise error
    assert 'aria-label="at most 90.0%"' in pages(run)[0].read_text()
    assert [sentence in page.read_text() for page in pages(run)] == [True, True]
    assert "overnight run &#39;a job.yaml&#39; --partition 2026-01-09" in pages(run)[0].read_text()


def test_a_page_that_cannot_be_made_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = job_of(tmp_path)
    with disable_run_logger(), opened(job, describe_run(job, "2026-01-09"), False) as run:
        keep_report(job, run, {"status": "published"}, "JOB.yaml")
    assert "the run has no report: KeyError" in caplog.text
    assert not pages(run)[0].exists()


def test_a_run_that_another_one_replaced_leaves_no_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = job_of(tmp_path)
    with disable_run_logger(), opened(job, describe_run(job, "2026-01-09"), False) as run:
        keep_report(job, replace(run, token=run.token + 1), published(tmp_path, "2026-01-09", 0.9), "JOB.yaml")
    assert "LeaseLost" in caplog.text
    assert not pages(run)[0].exists()
