"""Staged parts with the rows that a test says."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from overnight.tasks.rows.blocks import LIVE
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run

Rows = Sequence[tuple[int, int, Any]]  # unit, row, value


def stage(
    run: Run, name: str, rows: Rows, others: Sequence[tuple[int, int, int]] = (), kind: pa.DataType | None = None
) -> None:
    """A part with these rows, without the column x if its kind is null; `others` are source rows: unit, row, state."""
    units, numbers, values = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {
        "row_id": pa.array([f"{unit}#{row}" for unit, row, _ in rows], pa.string()),
        "x": pa.array(values, kind),
        "__unit": pa.array(units, pa.int64()),
        "__row": pa.array(numbers, pa.int64()),
    }
    if kind == pa.null():
        del columns["x"]
    settled = [*((unit, row, LIVE) for unit, row, _ in rows), *others]
    block = pa.table(list(zip(*settled, strict=True)), names=["__unit", "__row", "__state"])
    ranges, nothing = row_ranges.ranges_of(block), staged_parts.DETAILS.empty_table()
    staged_parts.write_part(run.parts, name, pa.table(columns), nothing, ranges, {}, "zstd")
