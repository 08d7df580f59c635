"""Staged parts with the rows that a test says."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.rows.blocks import LIVE
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run
from overnight.tasks.write.checks.column_statistics import describe

Rows = Sequence[tuple[int, int, Any]]  # unit, row, value


def stage(
    run: Run,
    name: str,
    rows: Rows,
    others: Sequence[tuple[int, int, int]] = (),
    kind: pa.DataType | None = None,
    compression: str = "zstd",
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
    table, statistics = pa.table(columns), describe(pa.table(columns).drop_columns(["__unit", "__row"]))
    staged_parts.write_part(run.parts, name, table, nothing, ranges, {}, compression, columns=statistics)


def stage_as_before(run: Run, name: str) -> None:
    """Write the part again as earlier versions did: with `__unit` and `__row`, and without statistics."""
    [record] = [record for record in staged_parts.read_records(run.parts) if record.name == name]
    path, table = f"{run.parts.uri}/{name}.part", staged_parts.read_part(run.parts, record)
    metadata = {key: value for key, value in pq.read_metadata(path).metadata.items() if key.startswith(b"overnight")}
    del metadata[staged_parts.COLUMNS_KEY]
    pq.write_table(table.replace_schema_metadata(metadata), path, compression="zstd")
