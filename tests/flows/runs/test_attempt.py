"""Which generation an attempt belongs to, without a run."""

import itertools
from pathlib import Path

import pytest
from prefect.logging import disable_run_logger

from overnight.flows.runs import run as described
from overnight.flows.runs.attempt import Scope, opened
from overnight.flows.runs.run import describe_run
from tests import jobs

DAY = "2026-03-01"


def generation_of(folder: Path, limit_rows: int, force: bool = False) -> str:
    """The generation of an attempt that dies as soon as it holds its partition."""
    job = jobs.load(folder)
    scope = Scope(describe_run(job, DAY, limit_rows=limit_rows))
    with disable_run_logger(), pytest.raises(KeyboardInterrupt), opened(job, scope, force) as run:
        raise KeyboardInterrupt
    return run.generation


def test_a_sample_that_died_is_resumed_and_one_of_another_size_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count(10)  # attempts of one second have an order by chance
    monkeypatch.setattr(described, "new_attempt", lambda: f"20260301T0000{next(seconds)}-abcdef")
    jobs.write_days(tmp_path, [DAY], rows=9)
    first = generation_of(tmp_path, 5)
    assert generation_of(tmp_path, 5) == first
    other = generation_of(tmp_path, 7)
    assert other != first
    assert generation_of(tmp_path, 7) == other
    assert generation_of(tmp_path, 7, force=True) != other
