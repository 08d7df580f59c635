"""The row contract: the content of a block, which travels between the rooms.

A block is a `pyarrow.Table`. Besides the columns that users see it has the hidden columns of `HIDDEN`:

    __unit, __row    int64   the manifest's unit and the 0-based row of its file; together they identify a source row
    __state          int8    LIVE, FILTERED, QUARANTINED, END, or PADDING
    __stage, __error_type, __error_message   string, of quarantined rows
    __<stage>_seconds, __<stage>_bytes       float64: this row's share of the stage's work and output; null: not reached
    __left_out_<name>                        null: the block had a column `name` that is not published

Filtered and quarantined rows stay in the block until the write, so that every source row is counted. Their other
columns are null, and a block without live rows has only its identity and hidden columns. An END row closes a unit whose
number of rows was unknown before: `__row` is that number. PADDING rows represent bytes, see `padding.py`.

A step may make several output rows of a source row. The block keeps one row for it, and the output rows are in the
hidden column of `nested_rows.py`; such a block has no data columns of its own. Work always gets output rows. They share
their source row's result: if one of them fails, all are quarantined; if none is left, the source row is filtered.

`apply.py` runs work on a block, `rebatch.py` joins and cuts blocks, and `tensors.py` keeps arrays in columns. This file
does not use files, models or Ray.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.rows import nested_rows
from overnight.tasks.rows.error_text import error_message, error_type
from overnight.tasks.rows.tensors import Column, to_arrow

LIVE, FILTERED, QUARANTINED, END, PADDING = range(5)
MEASURED_STAGES = ("ingest", "preprocess", "infer")
HIDDEN = pa.schema(
    [
        ("__unit", pa.int64()),
        ("__row", pa.int64()),
        ("__state", pa.int8()),
        ("__stage", pa.string()),
        ("__error_type", pa.string()),
        ("__error_message", pa.string()),
        *[(f"__{stage}_seconds", pa.float64()) for stage in MEASURED_STAGES],
        *[(f"__{stage}_bytes", pa.float64()) for stage in MEASURED_STAGES],
    ]
)
LEFT_OUT = "__left_out_"
IDENTITY = ("row_id", "uri")


def visible(block: pa.Table) -> pa.Table:
    """Return the block without its hidden columns."""
    return block.select([name for name in block.column_names if not is_hidden(name) and name != nested_rows.COLUMN])


def is_hidden(name: str) -> bool:
    """Return True if users do not see a column of this name."""
    return name in HIDDEN.names or name.startswith(LEFT_OUT)


def live_rows(block: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """Return the visible columns of the rows to process or write, and for each row its source row's place in the block.

    These are the live rows of the block. If a step made several rows of them, they are all output rows.
    """
    live = np.flatnonzero(block["__state"].to_numpy() == LIVE)
    if nested_rows.COLUMN in block.column_names:
        table, counts = nested_rows.unpacked(block[nested_rows.COLUMN].take(live))
        return table, np.repeat(live, counts)
    rows = visible(block)
    return (rows.take(live) if len(live) < len(block) else rows), live


def live_block(block: pa.Table) -> pa.Table:
    """Return the block without the rows that are settled."""
    return block.filter(pa.array(block["__state"].to_numpy() == LIVE))


def counts(block: pa.Table) -> np.ndarray:
    """Return how many rows each row of the block represents (int64): its number of output rows, otherwise 1."""
    if nested_rows.COLUMN not in block.column_names:
        return np.ones(len(block), np.int64)
    return np.maximum(nested_rows.counts(block[nested_rows.COLUMN]), 1)


def rows_each(block: pa.Table) -> float:
    """Return how many rows a live row represents on average; 1 without live rows."""
    found = counts(block)[block["__state"].to_numpy() == LIVE]
    return float(found.mean()) if len(found) else 1.0


def without(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the block without some of its visible columns, in its output rows too."""
    block = block.drop_columns([name for name in names if name in block.column_names])
    if nested_rows.COLUMN not in block.column_names:
        return block
    table, places = live_rows(block)
    return with_outputs(block, table.drop_columns([name for name in names if name in table.column_names]), places)


def leaving_out(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the block without these visible columns, which are not published; it keeps their names."""
    names = list(names)
    return noted_left_out(without(block, names), names)


def ordered(block: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the block with only these columns, in this order, after the columns that name rows; of output rows too."""

    def chosen(table: pa.Table) -> list[str]:
        wanted = [name for name in (*IDENTITY, *names) if name in table.column_names]
        return list(dict.fromkeys(wanted))

    if nested_rows.COLUMN in block.column_names:
        table, places = live_rows(block)
        return with_outputs(block, table.select(chosen(table)), places)
    return block.select([*chosen(block), *(name for name in block.column_names if is_hidden(name))])


def noted_left_out(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the block with a note, which takes no space, that columns of these names are not published."""
    for name in names:
        block = with_column(block, LEFT_OUT + name, pa.nulls(len(block)))
    return block


def left_out(block: pa.Table) -> list[str]:
    """Return the names of the unpublished columns of the block, or of a block joined into it."""
    return sorted(name.removeprefix(LEFT_OUT) for name in block.column_names if name.startswith(LEFT_OUT))


def with_outputs(block: pa.Table, table: pa.Table, places: np.ndarray) -> pa.Table:
    """Return `block` with the output rows `table`; `places` has the source row of each, ascending."""
    column = nested_rows.packed(table, np.bincount(places, minlength=len(block)))
    return with_column(drop_live_columns(block), nested_rows.COLUMN, column)


def with_hidden(data: pa.Table, units: np.ndarray, row_numbers: np.ndarray) -> pa.Table:
    """Return `data` as a block of live rows; `units` and `row_numbers` are int64, one per row."""
    count = len(data)
    known: dict[str, Any] = {"__unit": units, "__row": row_numbers, "__state": np.full(count, LIVE, np.int8)}
    for name, kind in zip(HIDDEN.names, HIDDEN.types, strict=True):
        array = pa.array(known[name], kind) if name in known else pa.nulls(count, kind)
        data = data.append_column(pa.field(name, kind), array)
    return data


def settled_block(identity: Mapping[str, list[Any]], unit: int, row_numbers: list[int], state: int) -> pa.Table:
    """Return a block of rows that are settled from the start (FILTERED, QUARANTINED or END); `identity` has columns."""
    table = pa.table({name: pa.array(values, pa.string()) for name, values in identity.items()})
    if not identity:
        table = pa.table({"row_id": pa.nulls(len(row_numbers), pa.string())})
    block = with_hidden(table, np.full(len(row_numbers), unit), np.asarray(row_numbers, np.int64))
    return with_column(block, "__state", pa.array([state] * len(row_numbers), pa.int8()))


def quarantined_block(
    identity: Mapping[str, list[Any]], unit: int, row_numbers: list[int], stage: str, errors: Sequence[Exception]
) -> pa.Table:
    """Return a block of rows quarantined by `stage` with one error each."""
    block = settled_block(identity, unit, row_numbers, QUARANTINED)
    return with_errors(block, dict(enumerate(errors)), stage)


def filtered(block: pa.Table, places: np.ndarray) -> pa.Table:
    """Return `block` with the rows at these places filtered."""
    state = block["__state"].to_numpy().copy()
    state[places] = FILTERED
    return with_column(block, "__state", pa.array(state))


def quarantine(block: pa.Table, error: Exception, stage: str) -> pa.Table:
    """Return `block` with its live rows quarantined for one reason, without any work on them."""
    live = np.flatnonzero(block["__state"].to_numpy() == LIVE)
    return drop_live_columns(with_errors(block, {int(row): error for row in live}, stage))


def drop_live_columns(block: pa.Table) -> pa.Table:
    """Return a block without live rows, reduced to identity and hidden columns.

    Its data columns are dropped, because they may still have a type that another block's columns no longer have.
    """
    return block.select([name for name in block.column_names if name in IDENTITY or is_hidden(name)])


def measured(block: pa.Table, rows: np.ndarray, stage: str, seconds: float, size: int) -> pa.Table:
    """Return `block` with `seconds` and `size` bytes of a stage's work divided evenly among `rows`."""
    for name, total in ((f"__{stage}_seconds", seconds), (f"__{stage}_bytes", size)):
        shares = block[name].combine_chunks().to_numpy(zero_copy_only=False).astype(np.float64)
        shares[rows] = np.nan_to_num(shares[rows]) + total / max(len(rows), 1)
        block = with_column(block, name, pa.array(shares, mask=np.isnan(shares)))
    return block


def seconds_a_row(block: pa.Table, stage: str) -> float:
    """Return the seconds of a stage's work per row of `block`; 0 if no row reached it."""
    seconds = block[f"__{stage}_seconds"].drop_null().to_numpy()
    return float(seconds.mean()) if len(seconds) else 0.0


def scatter(values: Column, places: np.ndarray, length: int) -> pa.Array | pa.ChunkedArray:
    """Return a column of `length` rows with `values` at these ascending places and nulls elsewhere."""
    column = values if isinstance(values, pa.ChunkedArray) else to_arrow(values)
    if len(places) == length:
        return column
    sources = np.zeros(length, np.int64)
    sources[places] = np.arange(len(places))
    missing = np.ones(length, bool)
    missing[places] = False
    return column.take(pa.array(sources, mask=missing))


def with_errors(block: pa.Table, failed: Mapping[int, Exception], stage: str) -> pa.Table:
    """Return `block` with rows quarantined by `stage`, each with its own error; `failed` maps places to errors."""
    if not failed:
        return block
    state = block["__state"].to_numpy().copy()
    state[list(failed)] = QUARANTINED
    block = with_column(block, "__state", pa.array(state))
    for name, describe in (
        ("__stage", lambda _: stage),
        ("__error_type", error_type),
        ("__error_message", error_message),
    ):
        values = block[name].to_pylist()
        for row, error in failed.items():
            values[row] = describe(error)
        block = with_column(block, name, pa.array(values, pa.string()))
    return block


def with_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    """Return `table` with a column added, or replaced in its place."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)
