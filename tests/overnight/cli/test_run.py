"""What `overnight run` prints of a receipt."""

import sys
from pathlib import Path
from subprocess import run as run_process

import pytest
from click.testing import CliRunner

from overnight.cli.run import run
from overnight.cli.run_view import show_receipt
from overnight.flows.job.model import Job


def test_the_files_of_a_sample_are_named_where_they_lie_and_what_was_passed_over_in_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = {"source": {"kind": "text", "path": "in"}, "sink": {"kind": "parquet", "path": "/out"}}
    job = Job.model_validate({"name": "texts", **written})
    numbers = dict.fromkeys(["rows_in", "rows_out", "rows_filtered", "rows_quarantined", "rows_resumed"], 1)
    times = {"finished_at": "2026", "seconds": 1.0, "rows_per_second": 1.0}
    receipt = {"job": "texts", "partition": "all", "status": "published", "files": ["a.parquet"], **numbers, **times}
    for limit_rows, file in ((None, "/out/a.parquet"), (5, "/out/_overnight/samples/published/a.parquet")):
        show_receipt({**receipt, "limit_rows": limit_rows}, job, "job.yaml")
        assert f"  file: {file}\n" in capsys.readouterr().out
    show_receipt({**receipt, "passed_over": {"FIFO": {"files": 1, "names": ["pipe.txt"]}}}, job, "job.yaml")
    assert "  passed over: 1 file; FIFO: pipe.txt\n" in capsys.readouterr().out
    counts = {"rows_written": 2, "rows_filtered": 0, "rows_quarantined": 1}
    show_receipt({**receipt, "retried": {"rows_quarantined_before": 3, **counts}}, job, "job.yaml")
    assert "  retried: 3 quarantined before; now 2 written, 0 filtered, 1 quarantined\n" in capsys.readouterr().out
    show_receipt({**receipt, "left_out": ["image", "pdf"]}, job, "job.yaml")
    assert "  columns left out: image, pdf (see sink.keep_columns)\n" in capsys.readouterr().out


@pytest.mark.parametrize("other", ["--force", "--limit-rows=5"])
def test_a_retry_of_quarantined_rows_takes_no_other_choice_of_rows(other: str) -> None:
    done = CliRunner().invoke(run, ["job.yaml", "--retry-quarantined", other])
    assert done.exit_code == 2
    assert "leave out --force and --limit-rows" in done.output


def test_a_refused_retry_names_the_run_of_the_whole_partition_and_not_itself(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("n\n1\n")
    (tmp_path / "job.yaml").write_text(
        "name: a\nsource: {kind: csv, path: in}\ninference: []\nsink: {kind: csv, path: out}\n"
    )
    command = [sys.executable, "-c", "from overnight.cli.main import main; main(prog_name='overnight')"]
    done = run_process(
        [*command, "run", "job.yaml", "--retry-quarantined"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot run alone: it is not published. Run the whole partition: `overnight run JOB.yaml`" in done.stderr
    assert "run it again" not in done.stderr
