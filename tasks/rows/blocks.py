"""The row contract: the content of a block, which travels between the rooms.

A block is a `pyarrow.Table`. Until the write it has one row per source row, so that every source row is counted. If a
step makes several output rows of a source row, these are in the column of `nested_rows.py`, and the block has no data
columns. They have one result: if one of them fails, the source row is quarantined. If all are filtered, so is it.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.rows import nested_rows
from overnight.tasks.rows.error_text import error_message, error_type
from overnight.tasks.rows.tensors import Column, to_arrow

LIVE, FILTERED, QUARANTINED, END = range(4)
MEASURED_STAGES = ("ingest", "preprocess", "infer")
REASON = ("__stage", "__error_type", "__error_message")
# The manifest's unit, and the 0-based row in its file. `__row` of an END row is the number of rows in the unit.
SOURCE_ROW = pa.schema([("__unit", pa.int64()), ("__row", pa.int64())])
MEASURES = [f"__{stage}_{unit}" for unit in ("seconds", "bytes") for stage in MEASURED_STAGES]
# The columns after the state have the type null until a row has a value.
HIDDEN = pa.schema(
    [*SOURCE_ROW, ("__state", pa.int8()), *zip(REASON, repeat(pa.string())), *zip(MEASURES, repeat(pa.float64()))]
)
# begins the name of a column of nulls, a note that the column of this name is not published
LEFT_OUT = "__left_out_"
# begins the name of a column with what a model made of the block's rows, see `memory/made_rows.py`
REMEMBERED = "__remembered_"
IDENTITY = ("row_id", "uri")


def data_name(name: str) -> str:
    """Return the name in a block of the column that its source calls `name`: `IDENTITY` has names of Overnight."""
    if name in IDENTITY:
        return f"source_{name}"
    return name


def has_outputs(block: pa.Table) -> bool:
    """Return True if steps have made output rows of the block's rows."""
    return nested_rows.COLUMN in block.column_names


def visible(block: pa.Table) -> pa.Table:
    """Return the block without its hidden columns and its output rows."""
    return block.select([name for name in block.column_names if not is_hidden(name) and name != nested_rows.COLUMN])


def is_hidden(name: str) -> bool:
    """Return True for a name of `HIDDEN`, `LEFT_OUT` or `REMEMBERED`, but not for output rows."""
    return name in HIDDEN.names or name.startswith((LEFT_OUT, REMEMBERED))


def is_live(block: pa.Table) -> np.ndarray:
    """Return a bool per row of the block."""
    return np.asarray(block["__state"].to_numpy() == LIVE)


def live_rows(block: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """Return the live rows without hidden columns, and the number of each in the block (int64).

    If the block has output rows, return these instead, each with the number of its source row.
    """
    live = np.flatnonzero(is_live(block))
    if has_outputs(block):
        table, numbers = nested_rows.unpacked(block[nested_rows.COLUMN].take(live))
        return table, np.repeat(live, numbers)
    rows = visible(block)
    if len(live) < len(block):
        rows = rows.take(live)
    return rows, live


def live_block(block: pa.Table) -> pa.Table:
    return block.filter(pa.array(is_live(block)))


def counts(block: pa.Table) -> np.ndarray:
    """Return the number of output rows of each row of the block (int64); 1 for a row without output rows."""
    if not has_outputs(block):
        return np.ones(len(block), np.int64)
    return np.maximum(nested_rows.counts(block[nested_rows.COLUMN]), 1)


def rows_each(block: pa.Table) -> float:
    """Return the mean of `counts` over the live rows; 1 if no row is live."""
    numbers = counts(block)[is_live(block)]
    return float(numbers.mean()) if len(numbers) else 1.0


def without(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the block without the visible columns `names`, which its output rows lose too; ignore unknown names."""
    names = set(names)
    block = block.drop_columns(sorted(names.intersection(block.column_names)))
    if not has_outputs(block):
        return block
    rows, sources = live_rows(block)
    return with_outputs(block, rows.drop_columns(sorted(names.intersection(rows.column_names))), sources)


def leaving_out(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the block without the visible columns `names`, but with a note that they are not published."""
    names = list(names)
    return noted_left_out(without(block, names), names)


def ordered(block: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the block with the columns `IDENTITY` and then `names`, in this order, but without other visible columns.

    If the block has output rows, their columns are selected instead.
    """
    names = list(dict.fromkeys([*IDENTITY, *names]))
    if has_outputs(block):
        rows, sources = live_rows(block)
        return with_outputs(block, rows.select(existing(rows, names)), sources)
    return block.select([*existing(block, names), *filter(is_hidden, block.column_names)])


def existing(table: pa.Table, names: Sequence[str]) -> list[str]:
    """Return those of the names that are columns of the table."""
    return [name for name in names if name in table.column_names]


def noted_left_out(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the block with a note for each of `names`: this column is not published."""
    for name in names:
        block = with_column(block, LEFT_OUT + name, pa.nulls(len(block)))
    return block


def left_out(block: pa.Table) -> list[str]:
    """Return the sorted names of the columns that the block notes as not published."""
    return sorted(name.removeprefix(LEFT_OUT) for name in block.column_names if name.startswith(LEFT_OUT))


def with_outputs(block: pa.Table, table: pa.Table, sources: np.ndarray) -> pa.Table:
    """Return `block` with `table` as its output rows, and without other data columns.

    `sources` has, for each output row, the number of its source row in the block, ascending.
    """
    column = nested_rows.packed(table, np.bincount(sources, minlength=len(block)))
    return with_column(drop_live_columns(block), nested_rows.COLUMN, column)


def with_hidden(data: pa.Table, units: np.ndarray, row_numbers: np.ndarray) -> pa.Table:
    """Return `data` as a block of live rows; `units` and `row_numbers` (int64) identify the source row of each."""
    identity = {"__unit": units, "__row": row_numbers, "__state": np.full(len(data), LIVE, np.int8)}
    for field in HIDDEN:
        column = pa.nulls(len(data))  # of no bytes
        if field.name in identity:
            column = pa.array(identity[field.name], field.type)
        data = data.append_column(field.name, column)
    return data


def settled_block(identity: Mapping[str, list[Any]], unit: int, row_numbers: list[int], state: int) -> pa.Table:
    """Return a block of rows of one unit that all have `state`, which is not LIVE.

    `identity` has the columns `row_id` and `uri` with one text per row; if it is empty, `row_id` is null.
    """
    columns = identity or {"row_id": [None] * len(row_numbers)}
    table = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    block = with_hidden(table, np.full(len(row_numbers), unit), np.asarray(row_numbers, np.int64))
    return with_column(block, "__state", pa.array([state] * len(row_numbers), pa.int8()))


def quarantined_block(
    identity: Mapping[str, list[Any]], unit: int, row_numbers: list[int], stage: str, errors: Sequence[Exception]
) -> pa.Table:
    """Return a `settled_block` of rows that `stage` quarantined; `errors` has one error per row."""
    block = settled_block(identity, unit, row_numbers, QUARANTINED)
    return with_errors(block, dict(enumerate(errors)), stage)


def filtered(block: pa.Table, rows: np.ndarray) -> pa.Table:
    """Return `block` with the rows of these numbers marked as filtered."""
    return _with_state(block, rows, FILTERED)


def _with_state(block: pa.Table, rows: Sequence[int] | np.ndarray, state: int) -> pa.Table:
    states = block["__state"].to_numpy().copy()
    states[rows] = state
    return with_column(block, "__state", pa.array(states))


def quarantine(block: pa.Table, error: Exception, stage: str) -> pa.Table:
    """Return `block` with all live rows quarantined by `stage`, for the same `error`."""
    live = np.flatnonzero(is_live(block)).tolist()
    return drop_live_columns(with_errors(block, dict.fromkeys(live, error), stage))


def drop_live_columns(block: pa.Table) -> pa.Table:
    """Return the block with only its identity and hidden columns.

    A block without live rows needs no data columns, and their types could differ from those of other blocks.
    """
    return block.select([name for name in block.column_names if name in IDENTITY or is_hidden(name)])


def measured(block: pa.Table, rows: np.ndarray, stage: str, seconds: float, size: int) -> pa.Table:
    """Return `block` with the `seconds` and output bytes of a stage's work divided evenly among the rows `rows`.

    They are added to the rows' measurements, which are null if a row has not reached the stage.
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


def scatter(values: Column, rows: np.ndarray, length: int) -> pa.Array | pa.ChunkedArray:
    """Return a column of `length` rows, with `values` at the ascending numbers `rows` and null at all others."""
    column = values if isinstance(values, pa.ChunkedArray) else to_arrow(values)
    if len(rows) == length:
        return column
    sources = np.full(length, -1)
    sources[rows] = np.arange(len(rows))
    return column.take(pa.array(sources, mask=sources < 0))


def with_errors(block: pa.Table, errors: Mapping[int, Exception], stage: str) -> pa.Table:
    """Return `block` with rows quarantined by `stage`; `errors` maps the number of each to its error."""
    if not errors:
        return block
    block = _with_state(block, list(errors), QUARANTINED)
    reasons = {row: (stage, error_type(error), error_message(error)) for row, error in errors.items()}
    for part, name in enumerate(REASON):
        texts = block[name].to_pylist()
        for row, reason in reasons.items():
            texts[row] = reason[part]
        block = with_column(block, name, pa.array(texts, pa.string()))
    return block


def with_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    """Return `table` with a column added, or replaced in its place."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)
