"""Reads a source as a run does, in plain Python, and puts rows into a form that can be compared."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import Source, seen_in
from overnight.tasks.rows import blocks
from overnight.tasks.rows.blocks import IDENTITY
from overnight.tasks.state.read_plan import PENDING


@dataclass
class Read:
    """Rows by `row_id`: the visible values of the good, message and type of the bad. `counts`: rows by path.

    `schemas` are the different visible schemas of blocks with good rows.
    """

    good: dict[str, dict[str, Any]] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    schemas: list[pa.Schema] = field(default_factory=list)

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.good.values()]

    def data(self) -> list[dict[str, Any]]:
        """The good rows without `row_id` and `uri`."""
        return [{name: value for name, value in row.items() if name not in IDENTITY} for row in self.good.values()]


def listed(source: Source, partition: str = "all") -> tuple[Source, pa.Table, pa.Schema | None]:
    """The source in its current version, its units, and the columns with which all of them are read."""
    if snapshot := source.snapshot(partition):
        source = source.at(snapshot)
    units = source.units(list_inputs(source, partition))
    return source, units, source.full_schema(source.common_schema(units, partition), seen_in(units))


def blocks_of(
    source: Source, units: pa.Table, schema: pa.Schema | None, counts: dict[str, int] | None = None
) -> Iterator[pa.Table]:
    """Yield the blocks that `source` reads. Fails unless every row of every unit is settled exactly once."""
    schema = schema or source.common_schema(units)
    pending = units.append_column("settled", pa.nulls(len(units), pa.list_(pa.int64()))).cast(PENDING)
    numbers: dict[int, list[int]] = defaultdict(list)
    ends: dict[int, int] = {}
    for block in source.rows(pending, schema):
        block.validate(full=True)
        for row in block.select(["__unit", "__row", "__state"]).to_pylist():
            unit, number, state = row.values()
            if state == blocks.END:
                assert unit not in ends
                ends[unit] = number
            else:
                numbers[unit].append(number)
        yield block
    for unit in units.to_pylist():
        count = ends[unit["unit"]] if unit["rows"] is None else unit["rows"]
        first = unit["first_row"]
        assert sorted(numbers[unit["unit"]]) == list(range(first, first + count)), unit["path"]
        if counts is not None:
            counts[unit["path"]] = counts.get(unit["path"], 0) + count


def read_all(
    source: Source, units: pa.Table | None = None, schema: pa.Schema | None = None, partition: str = "all"
) -> Read:
    """Everything that `source` reads."""
    if units is None:
        source, units, schema = listed(source, partition)
    found = Read()
    for block in blocks_of(source, units, schema or source.common_schema(units, partition), found.counts):
        visible = blocks.visible(block)
        if blocks.LIVE in block["__state"].to_pylist() and visible.schema not in found.schemas:
            found.schemas.append(visible.schema)
        for row, shown in zip(block.to_pylist(), visible.to_pylist(), strict=True):
            if row["__state"] == blocks.LIVE:
                found.good[row["row_id"]] = shown
            elif row["__state"] != blocks.END:
                assert row["__stage"] == "ingest"
                found.bad[row["row_id"]] = row["__error_message"]
                found.types[row["row_id"]] = row["__error_type"]
    return found


def canonical(value: Any) -> str:
    """A text that two values share only if they are equal, NaN and the types of Python included."""
    if isinstance(value, Mapping):
        if value.keys() == {"dtype", "shape", "data"}:  # an array, as blocks have it
            return canonical(np.frombuffer(value["data"], value["dtype"]).reshape(value["shape"]))
        return "{" + ", ".join(f"{key!r}: {canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, np.ndarray):
        return f"array({value.dtype}, {value.shape}, {canonical(value.tolist())})"
    if isinstance(value, np.generic):
        return canonical(value.item())
    if isinstance(value, list | tuple):
        brackets = "[]" if isinstance(value, list) else "()"
        return brackets[0] + ", ".join(map(canonical, value)) + brackets[1]
    if hasattr(value, "utcoffset") and value.utcoffset() is not None:
        return f"{value!r} at {value.isoformat()}" if hasattr(value, "nanosecond") else value.isoformat()
    return repr(value)


def lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The rows in a form and an order that can be compared; a failure shows the first difference."""
    return sorted(map(canonical, rows))
