"""In what pieces rows go to the steps, and in what pieces they are handed on."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.engine.stage import Stage
from overnight.tasks.preprocess.run_steps import Steps, try_first_rows
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import blocks, result
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.state.run import Run
from overnight.tasks.workers.row_isolation import TOGETHER
from tests.tasks.blocks import source_block
from tests.tasks.manifests import write_order
from tests.tasks.runs import make_run


class Noting(PreprocessStep):
    """Adds how many rows it was given; a file of nothing is a row's own fault."""

    kind: Literal["noting"] = "noting"

    def build(self) -> result.Work:
        def note(table: pa.Table) -> result.Outcome:
            empty = [row for row, file in enumerate(table["file"].to_pylist()) if file == b""]
            return result.Outcome({"given": [len(table)] * len(table)}, failed={row: ValueError() for row in empty})

        return note


class OneAtATime(Noting):
    rows_at_once: ClassVar[int] = 1


def made_of(files: list[Any], tmp_path: Path, step: PreprocessStep) -> list[pa.Table]:
    block = source_block(0, 0, pa.table({"row_id": [f"t#{i}" for i in range(len(files))], "file": files}))
    return list(Steps((step,)).load(make_run(tmp_path)).on([block], TOGETHER))


@pytest.mark.parametrize(
    ("file", "step", "expected"),
    [
        (b"x" * 100_000, Noting(), [16] * 32 + [8] * 8),
        ({"bytes": b"x" * 100_000, "path": "a"}, Noting(), [16] * 32 + [8] * 8),
        (b"x" * 2_000, Noting(), [32] * 32 + [8] * 8),
        (b"x" * 20, Noting(), [40] * 40),
        (b"x" * 20, OneAtATime(), [1] * 40),
    ],
    ids=["large", "large in structs", "small", "tiny", "one at a time"],
)
def test_small_files_go_to_the_steps_together_large_ones_some_at_a_time(
    tmp_path: Path, file: Any, step: PreprocessStep, expected: list[int]
) -> None:
    tables = made_of([file] * 40, tmp_path, step)
    assert [count for table in tables for count in table["given"].to_pylist()] == expected


def test_small_pieces_are_handed_on_as_one_and_large_ones_as_they_are(tmp_path: Path) -> None:
    [joined] = made_of([b"x" * 100] * 40, tmp_path, OneAtATime())
    assert all(column.num_chunks == 1 for column in joined.columns)
    assert joined["__row"].to_pylist() == list(range(40))
    assert [len(table) for table in made_of([b"x" * 400_000] * 8, tmp_path, OneAtATime())] == [3, 3, 2]


def test_what_a_sample_s_rows_cost_to_read_is_measured_warm(tmp_path: Path) -> None:
    run, starts = make_run(tmp_path), [1.0]  # a library is imported, a connection opened
    about = {"unit": [0], "path": ["a"], "uri": ["/a"], "size": [8], "version": [""], "first_row": [0], "rows": [8]}
    unit = pa.table({name: about.get(name, pa.nulls(1)) for name in PENDING.names}).cast(PENDING)
    write_order(run.order, unit, np.zeros(1, np.int64))

    class Read(Stage):
        label = counts_as = "ingest"

        def load(self, run: Run) -> "Read":
            return self

        def on(self, units: Iterable[pa.Table], isolation: object) -> Iterator[pa.Table]:
            block = source_block(0, 0, pa.table({"row_id": [f"a#{i}" for i in range(8)]}))
            yield blocks.measured(block, np.arange(8), "ingest", starts.pop() if starts else 0.008, 0)

    sample = try_first_rows(Read(), Steps(()), run, 8)
    assert blocks.seconds_a_row(sample, "ingest") == pytest.approx(0.001)


def test_a_piece_whose_rows_all_fail_is_handed_on_with_the_others(tmp_path: Path) -> None:
    [joined] = made_of([b"x", b"", b"x"], tmp_path, OneAtATime())
    assert joined["__state"].to_pylist() == [blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert joined["given"].to_pylist() == [1, None, 1]
