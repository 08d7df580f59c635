"""The row contract: the content of a block, which travels between the rooms.

A block is a `pyarrow.Table`. Besides the columns that users see it has the hidden columns of `HIDDEN`:

    __unit, __row    int64   the manifest's unit and the 0-based row of its file; together they identify a source row
    __state          int8    LIVE, FILTERED, QUARANTINED, END, or WEIGHT
    __stage, __error_type, __error_message   string, of quarantined rows
    __<stage>_seconds, __<stage>_bytes       float64, the stage's work on this row and its output; null: not reached
                                             (both, and the texts, have the type null until a row has a value)
    __left_out_<name>                        null, a mark that the block had a column `name`, which is not published

Filtered and quarantined rows stay in the block until the write, so that every source row is counted. Columns that are
made after that are null in these rows. A block without live rows has only its identity and hidden columns. An END row
closes a unit whose number of rows was unknown before: `__row` is that number. A WEIGHT row is only bytes, see
`passing_on.py`.

A step may make several output rows of a source row. The block still has one row for it. Its output rows are in the
hidden column of `nested_rows.py`, and the block has no data columns of its own. Work on such a block gets the output
rows. They have one result: if one of them fails, the source row is quarantined; if all are filtered, so is the source
row.

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

LIVE, FILTERED, QUARANTINED, END, WEIGHT = range(5)
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
    """Return True if `name` is a hidden column: one of `HIDDEN`, or a mark that `noted_left_out` makes.

    The result is False for the column of output rows, `nested_rows.COLUMN`, although users do not see it either.
    """
    return name in HIDDEN.names or name.startswith(LEFT_OUT)


def live_rows(block: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """Return the live rows without hidden columns, and the place of each in the block (int64).

    If the block has output rows, return these instead, each with the place of its source row.
    """
    live = np.flatnonzero(block["__state"].to_numpy() == LIVE)
    if nested_rows.COLUMN in block.column_names:
        table, counts = nested_rows.unpacked(block[nested_rows.COLUMN].take(live))
        return table, np.repeat(live, counts)
    rows = visible(block)
    return (rows.take(live) if len(live) < len(block) else rows), live


def live_block(block: pa.Table) -> pa.Table:
    """Return a block of only the live rows, with all columns."""
    return block.filter(pa.array(block["__state"].to_numpy() == LIVE))


def counts(block: pa.Table) -> np.ndarray:
    """Return the number of output rows of each row of the block (int64); 1 for a row without output rows."""
    if nested_rows.COLUMN not in block.column_names:
        return np.ones(len(block), np.int64)
    return np.maximum(nested_rows.counts(block[nested_rows.COLUMN]), 1)


def rows_each(block: pa.Table) -> float:
    """Return the mean number of output rows of the live rows; 1 if no row is live.

    A live row that has not become output rows counts as one.
    """
    found = counts(block)[block["__state"].to_numpy() == LIVE]
    return float(found.mean()) if len(found) else 1.0


def without(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the block without the visible columns `names`, which its output rows lose too; ignore unknown names."""
    block = block.drop_columns([name for name in names if name in block.column_names])
    if nested_rows.COLUMN not in block.column_names:
        return block
    table, places = live_rows(block)
    return with_outputs(block, table.drop_columns([name for name in names if name in table.column_names]), places)


def leaving_out(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the block without the visible columns `names`, but with a note that they are not published."""
    names = list(names)
    return noted_left_out(without(block, names), names)


def ordered(block: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the block with the columns `IDENTITY` and then `names`, in this order, but without other visible columns.

    If the block has output rows, their columns are selected instead.
    """

    def chosen(table: pa.Table) -> list[str]:
        wanted = [name for name in (*IDENTITY, *names) if name in table.column_names]
        return list(dict.fromkeys(wanted))

    if nested_rows.COLUMN in block.column_names:
        table, places = live_rows(block)
        return with_outputs(block, table.select(chosen(table)), places)
    return block.select([*chosen(block), *(name for name in block.column_names if is_hidden(name))])


def noted_left_out(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the block with a hidden column of nulls for each of `names`: a note that this column is not published."""
    for name in names:
        block = with_column(block, LEFT_OUT + name, pa.nulls(len(block)))
    return block


def left_out(block: pa.Table) -> list[str]:
    """Return the sorted names of the columns that the block marks as not published (see `noted_left_out`)."""
    return sorted(name.removeprefix(LEFT_OUT) for name in block.column_names if name.startswith(LEFT_OUT))


def with_outputs(block: pa.Table, table: pa.Table, places: np.ndarray) -> pa.Table:
    """Return `block` with `table` as its output rows, and without other data columns.

    `places` has, for each output row, the place in the block of its source row, ascending.
    """
    column = nested_rows.packed(table, np.bincount(places, minlength=len(block)))
    return with_column(drop_live_columns(block), nested_rows.COLUMN, column)


def with_hidden(data: pa.Table, units: np.ndarray, row_numbers: np.ndarray) -> pa.Table:
    """Return `data` as a block of live rows; `units` and `row_numbers` (int64) identify the source row of each."""
    known = {"__unit": units, "__row": row_numbers, "__state": np.full(len(data), LIVE, np.int8)}
    nulls = dict.fromkeys(HIDDEN.names[len(known) :], pa.nulls(len(data)))  # of no bytes
    fields = [*data.schema, *(HIDDEN.field(name) for name in known), *(pa.field(name, pa.null()) for name in nulls)]
    columns = [*data.columns, *(pa.array(values, HIDDEN.field(name).type) for name, values in known.items())]
    return pa.table([*columns, *nulls.values()], schema=pa.schema(fields, metadata=data.schema.metadata))


def settled_block(identity: Mapping[str, list[Any]], unit: int, row_numbers: list[int], state: int) -> pa.Table:
    """Return a block of rows of one unit that all have `state`, which is not LIVE.

    `row_numbers` are the rows' numbers in the unit's file. `identity` has the columns `row_id` and `uri` with one text
    per row; if it is empty, `row_id` is null.
    """
    table = pa.table({name: pa.array(values, pa.string()) for name, values in identity.items()})
    if not identity:
        table = pa.table({"row_id": pa.nulls(len(row_numbers), pa.string())})
    block = with_hidden(table, np.full(len(row_numbers), unit), np.asarray(row_numbers, np.int64))
    return with_column(block, "__state", pa.array([state] * len(row_numbers), pa.int8()))


def quarantined_block(
    identity: Mapping[str, list[Any]], unit: int, row_numbers: list[int], stage: str, errors: Sequence[Exception]
) -> pa.Table:
    """Return a block of rows of one unit that `stage` quarantined; `errors` has one error per row.

    `row_numbers` are the rows' numbers in the unit's file. `identity` has the columns `row_id` and `uri` with one text
    per row.
    """
    block = settled_block(identity, unit, row_numbers, QUARANTINED)
    return with_errors(block, dict(enumerate(errors)), stage)


def filtered(block: pa.Table, places: np.ndarray) -> pa.Table:
    """Return `block` with the rows at `places` marked as filtered."""
    state = block["__state"].to_numpy().copy()
    state[places] = FILTERED
    return with_column(block, "__state", pa.array(state))


def quarantine(block: pa.Table, error: Exception, stage: str) -> pa.Table:
    """Return `block` with all live rows quarantined by `stage`, for the same `error`."""
    live = np.flatnonzero(block["__state"].to_numpy() == LIVE)
    return drop_live_columns(with_errors(block, {int(row): error for row in live}, stage))


def drop_live_columns(block: pa.Table) -> pa.Table:
    """Return the block with only its identity and hidden columns.

    A block without live rows needs no data columns, and their types could differ from those of other blocks.
    """
    return block.select([name for name in block.column_names if name in IDENTITY or is_hidden(name)])


def measured(block: pa.Table, rows: np.ndarray, stage: str, seconds: float, size: int) -> pa.Table:
    """Return `block` with a stage's work added to the measurements of the rows at the places `rows`.

    `seconds` of work and `size` bytes of output are divided evenly among these rows.
    """
    for name, total in ((f"__{stage}_seconds", seconds), (f"__{stage}_bytes", size)):
        share = total / max(len(rows), 1)
        if len(rows) == len(block) == block[name].null_count:
            block = with_column(block, name, pa.repeat(share, len(block)))
            continue
        shares = block[name].cast(pa.float64()).to_numpy().copy()
        shares[rows] = np.nan_to_num(shares[rows]) + share
        block = with_column(block, name, pa.array(shares, mask=np.isnan(shares)))
    return block


def seconds_a_row(block: pa.Table, stage: str) -> float:
    """Return the mean seconds of a stage's work on a row of `block`; 0 if no row reached the stage."""
    seconds = block[f"__{stage}_seconds"].drop_null().to_numpy()
    return float(seconds.mean()) if len(seconds) else 0.0


def scatter(values: Column, places: np.ndarray, length: int) -> pa.Array | pa.ChunkedArray:
    """Return a column of `length` rows, with `values` at the ascending `places` and null at all others."""
    column = values if isinstance(values, pa.ChunkedArray) else to_arrow(values)
    if len(places) == length:
        return column
    sources = np.zeros(length, np.int64)
    sources[places] = np.arange(len(places))
    missing = np.ones(length, bool)
    missing[places] = False
    return column.take(pa.array(sources, mask=missing))


def with_errors(block: pa.Table, failed: Mapping[int, Exception], stage: str) -> pa.Table:
    """Return `block` with the failed rows quarantined by `stage`; `failed` maps the place of each to its error."""
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
