"""How a process runs the stages of a segment, and what it reports of them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.engine.passing_on import passed_on
from overnight.tasks.engine.segment import Segment, run_in_task, run_stages
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from tests.tasks.engine.stages import FakeRead, Half, Thirds, units_of
from tests.tasks.manifests import write_order
from tests.tasks.runs import make_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path)
    write_order(run.order, units_of(2, rows=10), np.arange(2))
    return run


@pytest.mark.parametrize("reads", [True, False], ids=["reads and prepares", "prepares"])
def test_rows_are_counted_by_stage_while_one_worker_does_all_of_their_work(
    reads: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker takes two blocks of ten rows, reads each in two pieces, and prepares three rows at a time."""
    state = supervisor.Supervisor()
    monkeypatch.setattr(supervisor, "emit", lambda run, event: state.on(event))
    stages = (*([FakeRead()] if reads else []), Thirds(), Half())
    inputs = [pa.table({"block": [number]}) if reads else FakeRead.rows(number, 0, 10) for number in range(2)]

    def work(block: pa.Table) -> list[pa.Table]:
        return list(run_stages(stages, stages, block, run, None))

    for block in inputs:
        pieces = run_stages(stages, stages, block, run, None)
        assert [len(next(pieces)) for _ in range(2)] == [2, 2]
    assert state.snapshot(run.attempt).passed == ({"ingest": 12} if reads else {}) | {"preprocess": 12}
    for block in (*inputs, inputs[0]):  # one input is run twice
        work(block)
    assert state.snapshot(run.attempt).passed == ({"ingest": 20} if reads else {}) | {"preprocess": 20}
    assert state.snapshot("another attempt").passed == {}


def test_a_task_passes_on_what_its_stages_make_and_no_weight_reaches_them(run: Run) -> None:
    [weighted] = passed_on([FakeRead.rows(0, 0, 3)], 1000, 0)
    assert len(weighted) == 4
    twice = Segment((Half(),), pass_on=lambda blocks: (pa.concat_tables([block, block]) for block in blocks))
    [made] = run_in_task(weighted, run, twice)
    assert made["__row"].to_pylist() == [0, 2, 0, 2]
    assert list(run_in_task(weighted[3:], run, twice)) == []
    assert [len(block) for block in run_in_task(weighted, run, Segment(()))] == [3]
    assert (Segment(()).name, Segment((FakeRead(), Half())).name) == ("passing on", "ingest + half")
