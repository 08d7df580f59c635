"""The page of a run is gathered from its receipt, the ledger and one pass over the rows, and written as one file."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from prefect.logging import disable_run_logger

from overnight.flows.notices.run_notice import Notice
from overnight.flows.report.page import render
from overnight.flows.report.report import keep_report, read_report
from overnight.flows.runs.attempt import Scope, opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import StageFailed
from overnight.tasks.state.run import Run, read_json, write_json
from overnight.tasks.write.checks.column_statistics import describe, summary
from overnight.tasks.write.sinks.parquet import ParquetSink
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
    assert [problem.split(":")[:2] for problem in report.problems] == [["rows", " FileNotFoundError"]]
    assert report.verdict.level == "look"
    assert "the published rows cannot be read" in report.verdict.sentence


class Archive(ParquetSink):
    """A sink of a package whose files only the package can read."""

    kind: Literal["archive"] = "archive"  # type: ignore[assignment]


def test_rows_of_a_sink_without_a_read_are_named_as_missing_and_the_rest_is_shown(tmp_path: Path) -> None:
    receipt = published(tmp_path, "2026-01-09", 0.9) | {"files": ["date=2026-01-09/part.archive"]}
    job = job_of(tmp_path).model_copy(update={"sink": Archive(path=str(tmp_path / "out"))})
    report = read_report(job, receipt)
    (problem,) = report.problems
    assert problem.startswith(
        "rows of this sink: expected published files of Parquet in a sink of kind archive, found "
    )
    assert report.verdict.level == "trust"
    assert report.verdict.sentence.endswith("This page shows no rows, because the sink has no method that reads them.")
    page = render(report)
    assert "Missing on this page" in page
    assert "predicted_label" in page


def test_incidents_of_a_run_that_failed_are_on_its_page_and_in_its_record(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    run = describe_run(job, "2026-01-09")
    incident = {"stage": "infer", "what": "a worker died and its rows were run again", "times": 2}
    with disable_run_logger(), pytest.raises(StageFailed), opened(job, Scope(run), False) as run:  # noqa: PT012 - as above
        write_json(run.incidents, {"incidents": [incident]})
        raise StageFailed("out of memory", "infer")
    assert read_json(run.ledger / "failure.json")["incidents"] == [incident]
    page = (tmp_path / "out/_overnight/date=2026-01-09/report.html").read_text()
    assert "a worker died and its rows were run again</bdi> (2 times)" in page


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("out/_overnight/date=2026-01-09/quarantine/quarantine-g-2026-01-09.parquet", "quarantine: ArrowInvalid"),
        ("out/date=2026-01-09/part.parquet", "rows: ArrowInvalid"),
        ("out/date=2026-01-08/part.parquet", "rows of the earlier partition: ArrowInvalid"),
    ],
)
def test_a_file_that_cannot_be_read_leaves_the_other_parts_of_the_page(
    tmp_path: Path, broken: str, problem: str
) -> None:
    published(tmp_path, "2026-01-08", 0.9)
    receipt = published(tmp_path, "2026-01-09", 0.9, rows_quarantined=1)
    (tmp_path / broken).write_bytes(b"PAR1")
    report = read_report(job_of(tmp_path), receipt)
    assert [text[: len(problem)] for text in report.problems] == [problem]
    assert problem in render(report)
    assert [bool(report.groups), bool(report.reasons)] == [problem[:5] != "rows:", "quarantine" not in problem]


def test_a_read_that_fails_halfway_leaves_no_counts_of_half_the_rows(tmp_path: Path) -> None:
    receipt = published(tmp_path, "2026-01-09", 0.9)
    report = read_report(job_of(tmp_path), receipt | {"files": [*receipt["files"], "date=2026-01-09/gone.parquet"]})
    assert [text[:23] for text in report.problems] == ["rows: FileNotFoundError"]
    assert report.sample.agreement is None
    assert not any(column.bins for column in report.columns)


def test_a_receipt_that_this_version_cannot_read_leaves_a_page_with_a_doubt(tmp_path: Path) -> None:
    publish(tmp_path, receipt_of("2026-01-08", {"score": {"mean": 1.0}}), rows(0.9))
    receipt = published(tmp_path, "2026-01-09", 0.9, incidents=["a text"])
    report = read_report(job_of(tmp_path), receipt)
    assert [text.partition(":")[0] for text in report.problems] == ["timeline", "columns"]
    assert report.groups
    assert report.verdict.sentence.startswith("Look before you use it: this page cannot show the columns.")


def test_the_first_rows_of_a_large_quarantine_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overnight.flows.report.report.MOST_QUARANTINED", 3)
    report = read_report(job_of(tmp_path), published(tmp_path, "2026-01-09", 0.9, rows_quarantined=5))
    assert report.reasons[0][0].count == 3
    assert report.problems == ["quarantine: the first 3 of 5 rows are counted"]


@pytest.mark.parametrize(("text", "number"), [(0, 1), (1, 0)])
def test_the_lengths_of_texts_are_not_beside_numbers(tmp_path: Path, text: int, number: int) -> None:
    columns = [pa.array([f"{count:0{count}}" for count in range(1, 10)]), pa.array([float(n) for n in range(9)])]
    for day, kind in (("2026-01-08", text), ("2026-01-09", number)):
        table = pa.table({"row_id": [*"abcdefghi"], "x": columns[kind]})
        receipt = publish(tmp_path, receipt_of(day, summary(describe(table), ())), table)
    (column,) = read_report(job_of(tmp_path), receipt).columns
    assert {bin.before for bin in column.bins} == {None}


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
    notice = Notice(job, run.partition, "a job.yaml")
    with disable_run_logger(), pytest.raises(type(error)), opened(job, Scope(run), False, notice) as run:  # noqa: PT012 - the body is the run
        samples = {"started_at": run.started_at, "seconds": [0.0, 0.001], "cpus_busy": [0.2, 0.9]}
        write_json(run.timeline, {"started_at": run.started_at, "stages": {}, "samples": samples})
        time.sleep(0.01)
        raise error
    assert 'aria-label="at most 90.0%"' in pages(run)[0].read_text()
    assert [sentence in page.read_text() for page in pages(run)] == [True, True]
    assert "overnight run &#39;a job.yaml&#39; --partition 2026-01-09" in pages(run)[0].read_text()


def test_a_timeline_that_cannot_be_read_does_not_hide_the_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_of(tmp_path)
    run = describe_run(job, "2026-01-09")
    with disable_run_logger(), pytest.raises(StageFailed), opened(job, Scope(run), False) as run:  # noqa: PT012 - as above
        run.timeline.write_bytes(b"{")
        raise StageFailed("the model crashed", "infer")
    assert "failure.json has no timeline: LedgerCorrupt" in caplog.text
    assert (read_json(run.ledger / "failure.json") or {})["error_message"] == "the model crashed"


def test_a_run_that_is_interrupted_after_its_publish_has_the_page_of_a_publish(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    run = describe_run(job, "2026-01-09")
    with disable_run_logger(), pytest.raises(KeyboardInterrupt), opened(job, Scope(run), False) as run:  # noqa: PT012 - the body is the run
        published(tmp_path, "2026-01-09", 0.9, generation=run.generation)
        raise KeyboardInterrupt
    assert "Trust it: 100 rows published" in pages(run)[0].read_text()


def test_half_a_character_in_a_receipt_leaves_a_page(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    with disable_run_logger(), opened(job, Scope(describe_run(job, "2026-01-09")), False) as run:
        keep_report(job, run, published(tmp_path, "2026-01-09", 0.9, warnings=["\ud800"]), "JOB.yaml")
    assert "Look before you use it: ?" in pages(run)[0].read_text()


def test_a_page_that_cannot_be_made_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = job_of(tmp_path)
    with disable_run_logger(), opened(job, Scope(describe_run(job, "2026-01-09")), False) as run:
        keep_report(job, run, {"status": "published"}, "JOB.yaml")
    assert "the run has no report: KeyError" in caplog.text
    assert not pages(run)[0].exists()


def test_a_run_that_another_one_replaced_leaves_no_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = job_of(tmp_path)
    with disable_run_logger(), opened(job, Scope(describe_run(job, "2026-01-09")), False) as run:
        keep_report(job, replace(run, token=run.token + 1), published(tmp_path, "2026-01-09", 0.9), "JOB.yaml")
    assert "LeaseLost" in caplog.text
    assert not pages(run)[0].exists()
