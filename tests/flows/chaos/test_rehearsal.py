"""What a seed draws, where a rehearsal refuses to run, and a sample that its kills leave exact."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from overnight.flows.chaos.rehearsal import FREEZE_RUN, KILL_RUN, Rehearsal, Report, draw_strikes
from overnight.tasks.errors import JobError
from tests.chaos.conftest import write_job
from tests.chaos.runs import SIGINT_NOT_IGNORED, wait_for
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


class Ended:
    """A run that has ended before any strike found a moment."""

    is_over = True

    def __init__(self) -> None:
        self.process = subprocess.Popen(["true"])

    def receipt(self) -> dict[str, int]:
        return {"rows_resumed": 0}


def test_strikes_for_which_each_run_is_too_short_are_counted_and_the_rehearsal_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rehearsal, "_start", lambda *_: Ended())
    monkeypatch.setattr(Rehearsal, "_staged_rows", lambda _: 0)
    report = Report("job", "all", 7, 10)
    assert Rehearsal(tmp_path, "all", 10, (), tmp_path)._disturbed(draw_strikes(3, 7), 1, report)
    assert (report.missed, report.runs, report.strikes) == (3, 3, [])


WAITS = """
import sys
from pathlib import Path
from overnight.flows.chaos import rehearsal
rehearsal.COMMAND = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
rehearsal.Rehearsal(Path("job.yaml"), "all", 10, (), Path(sys.argv[1])).play([], 0)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_rehearsal_that_is_ended_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    command = [*SIGINT_NOT_IGNORED, sys.executable, "-c", WAITS, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        below, alive = psutil.Process(process.pid), list[psutil.Process]()
        try:
            wait_for("a run and its child", lambda: len(below.children(recursive=True)) == 2)
            alive = below.children(recursive=True)
            process.send_signal(number)
            process.wait(60)
            alive = psutil.wait_procs(alive, 60)[1]
            assert alive == []
        finally:
            for each in (process, *alive):
                each.kill()


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
