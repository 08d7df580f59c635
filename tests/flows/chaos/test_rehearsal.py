"""What a seed draws, where a rehearsal refuses to run, and a sample that its kills leave exact."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from overnight.cli.chaos import show_report
from overnight.flows.chaos.processes import end_all, processes_with, wait_until
from overnight.flows.chaos.rehearsal import FREEZE_RUN, KILL_RUN, Rehearsal, Report, draw_strikes
from overnight.tasks.errors import JobError
from tests.chaos.conftest import write_job
from tests.conftest import WORKER_PATH


def test_a_seed_draws_the_same_strikes_in_the_order_of_their_shares() -> None:
    strikes = draw_strikes(9, 4711)
    assert strikes == draw_strikes(9, 4711)
    assert strikes != draw_strikes(9, 4712)
    assert [strike.share for strike in strikes] == sorted(strike.share for strike in strikes)
    kinds = [strike.what for strike in strikes]
    assert KILL_RUN in kinds
    assert kinds.count(FREEZE_RUN) == 1


def test_a_cluster_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with pytest.raises(JobError, match="RAY_ADDRESS"):
        Rehearsal(tmp_path / "job.yaml", "all", 10, (), tmp_path).play([], 0)


def test_only_processes_with_the_mark_end_and_their_children_do_too() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    mark = f"test-{os.getpid()}-{time.time_ns()}"
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "MARK_OF_TEST": mark}) as process:
        try:
            assert wait_until(lambda: len(processes_with("MARK_OF_TEST", mark)) == 2, 60)
        finally:
            end_all("MARK_OF_TEST", mark)
    assert process.returncode == -9
    assert processes_with("MARK_OF_TEST", mark) == {}


def test_the_tables_name_each_kill_and_count_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    strikes = [{"what": KILL_RUN, "share": 0.5, "seconds": 3.0}]
    report = Report("doubles", "all", 7, 400, torn=2, recomputed=3, runs=2, strikes=strikes, kept="/tmp/x")
    show_report(report, "job.yaml")
    shown = capsys.readouterr().out
    assert "the run killed" in shown
    assert "50%" in shown
    assert "overnight chaos job.yaml --kills 1 --rows 400 --seed 7" in shown
    assert not report.is_exact


@pytest.mark.chaos
def test_a_sample_under_kills_is_the_one_of_an_undisturbed_run(
    tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{WORKER_PATH}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    folder = write_job(tmp_path)
    results = tmp_path / "results"
    results.mkdir()
    report = Rehearsal(folder / "job.yaml", "all", 600, (), results).play(draw_strikes(4, 1), 1)
    assert (report.lost, report.doubled, report.torn, len(report.strikes)) == (0, 0, 0, 4)
    assert not (folder / "out").exists()
