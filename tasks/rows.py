"""The row contract: what travels between the rooms in a block, and how work is done on it.

A block is a `pyarrow.Table`. Besides the columns that users see it has the hidden columns of `HIDDEN`:

    __unit, __row    int64   the manifest's unit and the 0-based row of its file; together they name a source row
    __state          int8    LIVE, FILTERED, QUARANTINED, or END
    __stage, __error_type, __error_message   string, of quarantined rows
    __<stage>_seconds, __<stage>_bytes       float64: this row's share of the stage's work and output; null: not reached

Filtered and quarantined rows stay in the block until the write, so that every source row can be accounted for; their
other columns are null, and a block without live rows has none but its identity and hidden columns. An END row closes a
unit whose number of rows was not known beforehand: `__row` is that number.

How arrays lie in a column is `tasks/arrays.py`'s business. This file knows nothing of files, models or Ray.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.arrays import Column, same, to_arrow, to_numpy
from tasks.errors import ContractError, OvernightError, RowError

LIVE, FILTERED, QUARANTINED, END = range(4)
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
IDENTITY = ("row_id", "uri")
MESSAGE_LIMIT = 2000


@dataclass
class Outcome:
    """What a step made of some live rows.

    columns: added or replaced, one value a row. keep: bool a row, False filters it. failed: row -> its error; whatever
    `columns` holds for such a row is ignored.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    keep: np.ndarray | None = None
    failed: Mapping[int, Exception] = field(default_factory=dict)


Work = Callable[[pa.Table], Outcome]


def visible(block: pa.Table) -> pa.Table:
    """The block without its hidden columns."""
    return block.select([name for name in block.column_names if name not in HIDDEN.names])


def joined(blocks: Iterable[pa.Table]) -> pa.Table:
    """One block of many, whose columns may differ; without any, an empty one."""
    blocks = list(blocks)
    return pa.concat_tables(blocks, promote_options="permissive") if blocks else HIDDEN.empty_table()


def of_length(blocks: Iterable[pa.Table], length: int) -> Iterator[pa.Table]:
    """The same rows in blocks of `length`, the last one shorter; holds little more than one at a time."""
    held: list[pa.Table] = []
    for block in blocks:
        held.append(block)
        while sum(map(len, held)) >= length:
            whole = joined(held)
            yield whole[:length]
            held = [whole[length:]] if len(whole) > length else []
    if held:
        yield joined(held)


def with_hidden(data: pa.Table, units: np.ndarray, row_numbers: np.ndarray) -> pa.Table:
    """`data` as a block of live rows; `units` and `row_numbers` are int64, one a row."""
    count = len(data)
    known: dict[str, Any] = {"__unit": units, "__row": row_numbers, "__state": np.full(count, LIVE, np.int8)}
    for name, kind in zip(HIDDEN.names, HIDDEN.types, strict=True):
        array = pa.array(known[name], kind) if name in known else pa.nulls(count, kind)
        data = data.append_column(pa.field(name, kind), array)
    return data


def settled_block(identity: Mapping[str, list[Any]], unit: int, row_numbers: list[int], state: int) -> pa.Table:
    """A block of rows that are settled from the start (FILTERED, QUARANTINED or END); `identity` as columns."""
    table = pa.table({name: pa.array(values, pa.string()) for name, values in identity.items()})
    if not identity:
        table = pa.table({"row_id": pa.nulls(len(row_numbers), pa.string())})
    block = with_hidden(table, np.full(len(row_numbers), unit), np.asarray(row_numbers, np.int64))
    return _set(block, "__state", pa.array([state] * len(row_numbers), pa.int8()))


def quarantined_block(
    identity: Mapping[str, list[Any]], unit: int, row_numbers: list[int], stage: str, errors: Sequence[Exception]
) -> pa.Table:
    """A block of rows quarantined by `stage` with one error each."""
    block = settled_block(identity, unit, row_numbers, QUARANTINED)
    return _with_errors(block, dict(enumerate(errors)), stage)


def apply(block: pa.Table, stage: str, work: Work) -> pa.Table:
    """`block` after `work` was done on its live rows, with what failed or was filtered marked.

    `work` sees a table of live rows without hidden columns. When it raises, the rows are split in halves, each tried
    afresh, until the culprits stand alone; those are quarantined. `OvernightError` is not a row's fault and propagates.
    """
    started = time.perf_counter()
    block = block.combine_chunks()
    live = np.flatnonzero(block["__state"].to_numpy() == LIVE)
    if len(live) == 0:
        return _settled_only(block)
    rows = visible(block)
    if len(live) < len(block):
        rows = rows.take(live)
    columns, keep, failed = _isolated(rows, work)
    for name in IDENTITY:
        columns.pop(name, None)
    for name, column in columns.items():
        block = _set(block, name, _scatter(column, live, len(block)))
    if keep is not None and not keep.all():
        state = block["__state"].to_numpy().copy()
        state[live[~keep]] = FILTERED
        block = _set(block, "__state", pa.array(state))
    block = _with_errors(block, {int(live[row]): error for row, error in failed.items()}, stage)
    size = sum(column.nbytes for column in columns.values())
    block = measured(block, live, stage, time.perf_counter() - started, size)
    return block if (block["__state"].to_numpy() == LIVE).any() else _settled_only(block)


def quarantine(block: pa.Table, error: Exception, stage: str) -> pa.Table:
    """`block` with its live rows quarantined for one reason, without having been worked on."""
    live = np.flatnonzero(block["__state"].to_numpy() == LIVE)
    return _settled_only(_with_errors(block, {int(row): error for row in live}, stage))


def _settled_only(block: pa.Table) -> pa.Table:
    """A block without live rows, of which nothing is left but what they are and how they ended.

    Its data columns go, for they may still be of the type that another block's have left behind.
    """
    return block.select([name for name in block.column_names if name in IDENTITY or name in HIDDEN.names])


def measured(block: pa.Table, rows: np.ndarray, stage: str, seconds: float, size: int) -> pa.Table:
    """`block` with `seconds` and `size` bytes of a stage's work shared out evenly over `rows`."""
    for name, total in ((f"__{stage}_seconds", seconds), (f"__{stage}_bytes", size)):
        shares = block[name].combine_chunks().to_numpy(zero_copy_only=False).astype(np.float64)
        shares[rows] = np.nan_to_num(shares[rows]) + total / max(len(rows), 1)
        block = _set(block, name, pa.array(shares, mask=np.isnan(shares)))
    return block


def seconds_a_row(block: pa.Table, stage: str) -> float:
    """What a stage's work took for a row of `block`; 0 where no row reached it."""
    seconds = block[f"__{stage}_seconds"].drop_null().to_numpy()
    return float(seconds.mean()) if len(seconds) else 0.0


def call(function: Callable[[dict[str, np.ndarray]], Any], rows: pa.Table, stage: str, what: str) -> dict[str, Column]:
    """User code on writable arrays, and what it returned, checked: a dict with one value a row in every column.

    Columns handed back as they were given are left out: they stay as they are, and keep an Arrow type that a detour
    through NumPy would blur (a nullable integer would come back as a float). Raises `ContractError` when the return
    value is not what Ray Data documents.
    """
    given = {name: to_numpy(rows[name], writable=True) for name in rows.column_names}
    returned = function(dict(given))
    if not isinstance(returned, Mapping):
        raise ContractError(
            f"{what}: expected a dict of arrays, found {type(returned).__name__}. "
            "Return {column: array with one value a row}.",
            stage,
        )
    columns: dict[str, Column] = {}
    for name, values in returned.items():
        count = len(values) if hasattr(values, "__len__") else None
        if count != len(rows):
            found = f"{count} values" if count is not None else f"a single {type(values).__name__}"
            raise ContractError(
                f"{what}: column {name!r} has {found} for a batch of {len(rows)} rows. "
                "Return exactly one value a row; use filter_rows to drop rows.",
                stage,
            )
        if not isinstance(name, str) or name.startswith("__"):
            raise ContractError(f"{what}: {name!r} is not a usable column name (a string without leading __).", stage)
        if not (name in given and values is given[name] and same(values, to_numpy(rows[name]))):
            columns[name] = values
    return columns


def stacked(outputs: Sequence[Mapping[str, Column]]) -> Outcome:
    """The outputs of several calls on rows that follow one another, as those of one call."""
    if len(outputs) == 1:
        return Outcome(outputs[0])
    tables = [pa.table({name: to_arrow(values) for name, values in columns.items()}) for columns in outputs]
    table = pa.concat_tables(tables, promote_options="permissive")
    return Outcome({name: table[name] for name in table.column_names})


def _isolated(rows: pa.Table, work: Work) -> tuple[dict[str, pa.ChunkedArray], np.ndarray | None, dict[int, Exception]]:
    try:
        outcome = work(rows)
        columns = {name: to_arrow(values) for name, values in outcome.columns.items()}
        return {n: pa.chunked_array([c]) for n, c in columns.items()}, outcome.keep, dict(outcome.failed)
    except OvernightError:
        raise
    except Exception as error:
        if len(rows) == 1:
            return {}, None, {0: error}
    half = len(rows) // 2
    first, second = _isolated(rows[:half], work), _isolated(rows[half:], work)
    keeps = [
        part[1] if part[1] is not None else np.ones(size, bool)
        for part, size in ((first, half), (second, len(rows) - half))
    ]
    keep = None if first[1] is None and second[1] is None else np.concatenate(keeps)
    failed = first[2] | {row + half: error for row, error in second[2].items()}
    return _stack(first[0], half, second[0], len(rows) - half), keep, failed


def _stack(
    first: dict[str, pa.ChunkedArray], first_rows: int, second: dict[str, pa.ChunkedArray], second_rows: int
) -> dict[str, pa.ChunkedArray]:
    if not first and not second:
        return {}
    tables = [
        pa.table(columns) if columns else pa.table({"__padding": pa.nulls(count)})
        for columns, count in ((first, first_rows), (second, second_rows))
    ]
    joined = pa.concat_tables(tables, promote_options="permissive")
    return {name: joined[name] for name in joined.column_names if name != "__padding"}


def _scatter(column: pa.ChunkedArray, places: np.ndarray, length: int) -> pa.ChunkedArray:
    if len(places) == length:
        return column
    sources = np.zeros(length, np.int64)
    sources[places] = np.arange(len(places))
    missing = np.ones(length, bool)
    missing[places] = False
    return column.take(pa.array(sources, mask=missing))


def _with_errors(block: pa.Table, failed: Mapping[int, Exception], stage: str) -> pa.Table:
    if not failed:
        return block
    state = block["__state"].to_numpy().copy()
    state[list(failed)] = QUARANTINED
    block = _set(block, "__state", pa.array(state))
    for name, describe in (
        ("__stage", lambda _: stage),
        ("__error_type", error_type),
        ("__error_message", error_message),
    ):
        values = block[name].to_pylist()
        for row, error in failed.items():
            values[row] = describe(error)
        block = _set(block, name, pa.array(values, pa.string()))
    return block


def error_type(error: Exception) -> str:
    """The name under which an error is quarantined; a `RowError` passes on the name of its cause."""
    cause = error.__cause__ if isinstance(error, RowError) and error.__cause__ else error
    return type(cause).__name__


def error_message(error: Exception) -> str:
    """An error's text, never empty and at most `MESSAGE_LIMIT` characters."""
    message = (str(error) or type(error).__name__)[:MESSAGE_LIMIT]
    return message.encode(errors="replace").decode()  # file names that are no UTF-8


def _set(table: pa.Table, name: str, column: Any) -> pa.Table:
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)
