"""Progress recognizes the operators of the stream by the names that Ray Data gives them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray.data

from overnight.tasks.infer import operators
from overnight.tasks.infer.operators import names_by_stage, prepare_rows, worker_preparation
from overnight.tasks.resources.plan import Plan
from overnight.tasks.state.run import Run
from overnight.tasks.state.stream import Stream
from overnight.tasks.storage.location import Location
from overnight.tasks.workers import supervisor
from overnight.tasks.write.stream.progress import follow
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run


def half(block: pa.Table, run: Run) -> Iterator[pa.Table]:
    yield block[::2]


def test_reading_and_preprocessing_are_recognized_by_their_operators(ray_session: None, tmp_path: Path) -> None:
    numbers = ray.data.range(20, override_num_blocks=1)
    dataset = prepare_rows(numbers, make_run(tmp_path), half, Plan(1, None, (), ()))
    told: list[dict[str, int]] = []
    with follow(dataset, names_by_stage(), lambda rows, done: told.append(rows)):
        assert sum(bundle.num_rows() for bundle in dataset.iter_internal_ref_bundles()) == 10
    assert told[-1] == {"ingest": 20, "preprocess": 10}


@pytest.mark.parametrize("reads", [True, False], ids=["reads and prepares", "prepares"])
def test_rows_are_counted_by_stage_while_one_worker_does_all_of_their_work(
    reads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker takes two blocks of ten rows, reads each in two pieces, and prepares three rows at a time."""
    state, run = supervisor.Supervisor(), make_run(tmp_path)
    monkeypatch.setattr(supervisor, "emit", lambda run, event: state.on(event))
    monkeypatch.setattr(operators, "read_block", lambda order, number: number)

    def rows(number: int, start: int, stop: int) -> pa.Table:
        table = pa.table({"row_id": [f"{number}#{row}" for row in range(start, stop)]})
        return source_block(number, start, table)

    def read(number: int, run: Run) -> Iterator[pa.Table]:
        yield from (rows(number, 0, 6), rows(number, 6, 10))

    def steps(block: pa.Table, run: Run, isolation: Any) -> Iterator[pa.Table]:
        yield from (block[start : start + 3] for start in range(0, len(block), 3))

    prepare = worker_preparation(run, Stream(None, None, read, Location("sample"), False, steps=steps), reads)
    inputs = [pa.table({"block": [number]}) if reads else rows(number, 0, 10) for number in range(2)]
    for one in inputs:
        pieces = prepare(one, isolation=None)
        assert [len(next(pieces)) for _ in range(2)] == [3, 3]
    assert state.snapshot(run.attempt).passed == ({"ingest": 12} if reads else {}) | {"preprocess": 12}
    for one in (*inputs, inputs[0]):  # one input is run twice
        list(prepare(one, isolation=None))
    assert state.snapshot(run.attempt).passed == ({"ingest": 20} if reads else {}) | {"preprocess": 20}
    assert state.snapshot("another attempt").passed == {}
