"""Stages without files and models, and units for them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from overnight.tasks.engine.stage import Stage
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.state.run import Run
from tests.tasks.blocks import source_block


def units_of(count: int, rows: int) -> pa.Table:
    """Units of so many rows, to read."""
    columns: dict[str, list[Any]] = {
        "unit": list(range(count)), "path": [f"{unit}.x" for unit in range(count)], "uri": ["/a"] * count,
        "size": [8] * count, "version": [""] * count, "first_row": [0] * count, "rows": [rows] * count,
    }  # fmt: skip
    return pa.table({name: columns.get(name, pa.nulls(count)) for name in PENDING.names}).cast(PENDING)


class FakeRead(Stage):
    """Reads ten rows of each unit, first six and then four."""

    label = counts_as = "ingest"

    def load(self, run: Run) -> "FakeRead":
        return self

    def on(self, blocks: Iterable[pa.Table], isolation: object) -> Iterator[pa.Table]:
        for unit in (unit for units in blocks for unit in units["unit"].to_pylist()):
            yield from (self.rows(unit, 0, 6), self.rows(unit, 6, 10))

    @staticmethod
    def rows(unit: int, start: int, stop: int) -> pa.Table:
        return source_block(unit, start, pa.table({"row_id": [f"{unit}#{row}" for row in range(start, stop)]}))


class Thirds(Stage):
    """Passes three rows at a time."""

    label, counts_as = "thirds", "preprocess"

    def load(self, run: Run) -> "Thirds":
        return self

    def on(self, blocks: Iterable[pa.Table], isolation: object) -> Iterator[pa.Table]:
        for block in blocks:
            yield from (block[start : start + 3] for start in range(0, len(block), 3))


class Half(Stage):
    """Passes every second row."""

    label, counts_as = "half", "preprocess"

    def load(self, run: Run) -> "Half":
        return self

    def on(self, blocks: Iterable[pa.Table], isolation: object) -> Iterator[pa.Table]:
        return (block[::2] for block in blocks)

    @staticmethod
    def block(**columns: Sequence[Any]) -> pa.Table:
        ids = [f"a#{row}" for row in range(len(next(iter(columns.values()))))]
        return source_block(0, 0, pa.table({"row_id": ids, **columns}))
