"""Read a file as Overnight does, without Ray and Prefect: a source lists and reads it, and steps process its rows."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from judging import Refused

from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import Source
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import apply, blocks
from overnight.tasks.state.read_plan import PENDING


def read(
    kind: type[Source], path: Path, steps: Sequence[PreprocessStep] = (), **settings: Any
) -> list[pa.Table | Refused]:
    """Return every row of a file, in its order, as a table of its output rows, or `Refused` if it is quarantined.

    Raises:
        AssertionError: A row is settled twice or not at all.
    """
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, path.name.lstrip("._"))  # a listing skips names that begin with these
        link.symlink_to(path.absolute())
        return _rows(kind(path=folder, **settings), steps)


def _rows(source: Source, steps: Sequence[PreprocessStep]) -> list[pa.Table | Refused]:
    units = source.units(list_inputs(source, "all"))
    schema = source.common_schema(units)
    pending = units.append_column("settled", pa.nulls(len(units), pa.list_(pa.int64()))).cast(PENDING)
    works = [step.build() for step in steps]
    found: dict[tuple[int, int], pa.Table | Refused] = {}
    ends: dict[int, int] = {}
    for block in source.read(pending, schema):
        for work in works:
            block = apply.apply(block, "preprocess", work)  # noqa: PLW2901
        _add(block, found, ends)
    expected = [
        (unit["unit"], unit["first_row"] + row)
        for unit in units.to_pylist()
        for row in range(ends[unit["unit"]] if unit["rows"] is None else unit["rows"])
    ]
    assert sorted(found) == expected, f"expected {len(expected)} rows, each once, found {len(found)}"
    return [found[place] for place in expected]


def values(
    kind: type[Source], path: Path, as_dicts: Callable[[pa.Table], list[Any]] = pa.Table.to_pylist, **settings: Any
) -> list[Any]:
    """Return the rows of a table as dicts without identity."""
    found: list[Any] = []
    for row in read(kind, path, **settings):
        if isinstance(row, Refused):
            found.append(row)
            continue
        data = row.drop_columns([name for name in blocks.IDENTITY if name in row.column_names])
        found += as_dicts(data) or [{}]  # an object without keys
    return found


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as dicts, with days and times as numbers, because Python's years end at 1 and 9999."""
    columns = [column.cast(_without_times(column.type)) for column in table.columns]
    return pa.table(columns, names=table.column_names).to_pylist()


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return kind


def _add(block: pa.Table, found: dict[tuple[int, int], pa.Table | Refused], ends: dict[int, int]) -> None:
    table, places = blocks.live_rows(block)
    hidden = block.select(["__unit", "__row", "__state", "__error_message"]).to_pylist()
    for place, row in enumerate(hidden):
        if row["__state"] == blocks.END:
            ends[row["__unit"]] = row["__row"]
            continue
        key = row["__unit"], row["__row"]
        assert key not in found, f"row {key} is settled twice"
        is_live = row["__state"] == blocks.LIVE
        mine = pa.array(np.flatnonzero(places == place))
        found[key] = table.take(mine) if is_live else Refused(row["__error_message"] or "filtered")
