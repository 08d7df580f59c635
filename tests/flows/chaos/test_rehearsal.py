"""What a seed draws, where a rehearsal refuses to run, and a sample that its kills leave exact."""

import os
from pathlib import Path

import pytest

from overnight.flows.chaos.rehearsal import FREEZE_RUN, KILL_RUN, Rehearsal, draw_strikes
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


@pytest.mark.nightly
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
