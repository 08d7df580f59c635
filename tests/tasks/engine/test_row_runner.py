"""The one place that runs operations on rows: what fails is quarantined and reported, except in a trial."""

from pathlib import Path

import pyarrow as pa
import pytest

from overnight.tasks.engine.row_runner import Operation, RowRunner
from overnight.tasks.errors import TooManyQuarantined
from overnight.tasks.rows import blocks
from overnight.tasks.rows.result import Outcome
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.poison_rows import DeathExplained, RowsBegun
from overnight.tasks.workers.row_isolation import APART, TOGETHER
from tests.tasks.engine.stages import Half
from tests.tasks.runs import make_run


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> supervisor.Supervisor:
    """The supervisor of this process, which allows one quarantined row."""
    state = supervisor.Supervisor()
    monkeypatch.setattr(supervisor, "emit", lambda run, event: state.on(event))
    monkeypatch.setattr(supervisor, "ask", lambda run, question, *rest: getattr(state, question.__name__)(*rest))
    monkeypatch.setattr(supervisor, "is_there", lambda run: True)
    state.on(supervisor.QuarantineAllowed(1, 0, "of 6"))
    return state


def below(limit: int) -> Operation:
    """Doubles x, and refuses an x from `limit` on."""

    def work(rows: pa.Table) -> Outcome:
        if max(rows["x"].to_pylist()) >= limit:
            raise ValueError("too large")
        return Outcome({"x": [2 * x for x in rows["x"].to_pylist()]})

    return Operation(f"below {limit}", lambda _: work)


def test_operations_run_one_after_another_and_each_failed_row_is_quarantined_and_reported(
    tmp_path: Path, state: supervisor.Supervisor
) -> None:
    runner = RowRunner(make_run(tmp_path), "preprocess", "steps")
    done = runner.run(Half.block(x=range(6)), [below(9), below(9)], TOGETHER)
    assert blocks.live_rows(done)[0]["x"].to_pylist() == [0, 4, 8, 12, 16]
    assert state.quarantined_since(0, 9)[0] == 1
    with pytest.raises(TooManyQuarantined, match="at least 2 rows"):
        runner.run(Half.block(x=[9] * 6)[1:2], [below(9)], TOGETHER)


def test_a_row_that_killed_its_workers_is_reported_too(tmp_path: Path, state: supervisor.Supervisor) -> None:
    runner, block = RowRunner(make_run(tmp_path), "preprocess", "steps"), Half.block(x=range(3))
    state.on(RowsBegun("dead", ("steps", 0, 0, 3), 1, 2))
    state.on(DeathExplained("dead", ("RowTimeout", "slow"), is_certain=True))
    done = runner.run(block, [below(9)], APART)
    assert done["__error_type"].to_pylist() == [None, "RowTimeout", None]
    assert state.quarantined_since(0, 9)[0] == 1, "it counts against the limit"


def test_a_trial_keeps_the_errors_and_reports_nothing(tmp_path: Path, state: supervisor.Supervisor) -> None:
    runner = RowRunner(make_run(tmp_path), "preprocess", "steps", is_trial=True)
    runner.run(Half.block(x=range(6)), [below(3)], TOGETHER)
    assert [str(error) for error in runner.errors or []] == ["too large"] * 3
    assert state.quarantined_since(0, 9)[0] == 0
