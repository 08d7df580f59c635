"""What `overnight run` prints of a receipt, and which rows it takes."""

from typing import Any

import pytest
from click.testing import CliRunner

from overnight.cli.run import run
from overnight.cli.run_view import next_steps, show_receipt
from overnight.tasks.storage.location import Location
from tests import jobs
from tests.flows.conftest import Overnight

RECEIPT = {
    **dict.fromkeys(["rows_in", "rows_out", "rows_filtered", "rows_quarantined", "rows_resumed"], 1),
    **{"job": "texts", "partition": "all", "status": "published", "files": ["a.parquet"], "limit_rows": None},
    **{"finished_at": "2026", "seconds": 1.0, "rows_per_second": 1.0},
}
RETRIED = {"rows_quarantined_before": 3, "rows_written": 2, "rows_filtered": 0, "rows_quarantined": 1}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "file: {out}/a.parquet"),
        ({"limit_rows": 5}, "file: {out}/_overnight/samples/published/a.parquet"),
        ({"passed_over": {"FIFO": {"files": 1, "names": ["pipe.txt"]}}}, "passed over: 1 file; FIFO: pipe.txt"),
        ({"retried": RETRIED}, "retried: 3 quarantined before; now 2 written, 0 filtered, 1 quarantined"),
        ({"spent": {"answers": 2, "tokens": 1234, "cost": 0.42}}, "spent: 1,234 tokens, cost 0.42"),
        ({"left_out": ["image", "pdf"]}, "columns left out: image, pdf (see sink.keep_columns)"),
    ],
)
def test_a_receipt_is_lines_for_a_user(more: dict[str, Any], line: str, tmp_path, capsys) -> None:
    show_receipt(RECEIPT | more, jobs.load(tmp_path), "job.yaml")
    assert f"  {line.format(out=f'{tmp_path}/out')}\n" in capsys.readouterr().out


@pytest.mark.parametrize("is_sample", [False, True])
def test_the_last_lines_of_a_run_name_its_report(is_sample: bool, tmp_path, capsys) -> None:
    ledger = tmp_path / "out/_overnight" / ("samples/all" if is_sample else "all")
    job = jobs.load(tmp_path, source={"kind": "parquet", "path": "in/"})
    show_receipt(RECEIPT | {"limit_rows": 5 * is_sample}, job, "job.yaml")
    assert "report:" not in capsys.readouterr().out
    ledger.mkdir(parents=True)
    (ledger / "report.html").touch()
    show_receipt(RECEIPT | {"limit_rows": 5 * is_sample}, job, "job.yaml")
    assert f"  report: {ledger}/report.html\n" in capsys.readouterr().out
    line, outputs = f"report: {ledger}/report.html", job.samples if is_sample else job.published
    assert line not in next_steps(job, "all", "job.yaml", outputs, [])  # its latest run did not fail
    assert next_steps(job, "all", "job.yaml", outputs, [], is_cancelled=True)[0] == line
    (ledger / "failure.json").write_text('{"quarantine": null}')
    assert next_steps(job, "all", "job.yaml", outputs, [])[0] == line
    (ledger / "failure.json").write_text('{"quarantine": null, "spent": {"answers": 2, "tokens": 7, "cost": null}}')
    assert next_steps(job, "all", "job.yaml", outputs, [])[0] == "spent: 7 tokens"


def test_a_storage_that_fails_after_the_publish_costs_only_the_line_of_the_report(
    tmp_path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Location) -> bool:
        raise OSError("the store is down")

    monkeypatch.setattr(Location, "exists", refuse)
    show_receipt(RECEIPT, jobs.load(tmp_path), "job.yaml")
    assert "more: overnight show job.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("other", ["--force", "--limit-rows=5"])
def test_a_retry_of_quarantined_rows_takes_no_other_choice_of_rows(other: str) -> None:
    done = CliRunner().invoke(run, ["job.yaml", "--retry-quarantined", other])
    assert done.exit_code == 2
    assert "leave out --force and --limit-rows" in done.output


def test_a_refused_retry_names_the_run_of_the_whole_partition_and_not_itself(overnight: Overnight, tmp_path) -> None:
    jobs.write_days(tmp_path, ["2026-01-02"])
    jobs.write_job(tmp_path / "job.yaml")
    done = overnight("run", "job.yaml", "--partition", "2026-01-02", "--retry-quarantined")
    assert done.returncode == 1
    assert "cannot run alone: it is not published. Run the whole partition: `overnight run JOB.yaml" in done.stderr
    assert "run it again" not in done.stderr
