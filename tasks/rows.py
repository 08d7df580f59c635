"""The row contract: what travels between the rooms in a block, and how work is done on it.

A block is a `pyarrow.Table`. Besides the columns that users see it has the hidden columns of `HIDDEN`:

    __unit, __row    int64   the manifest's unit and the 0-based row of its file; together they name a source row
    __state          int8    LIVE, FILTERED, QUARANTINED, or END
    __stage, __error_type, __error_message   string, of quarantined rows
    __<stage>_seconds, __<stage>_bytes       float64: this row's share of the stage's work and output; null: not reached

Filtered and quarantined rows stay in the block until the write, so that every source row can be accounted for; their
other columns are null, and a block without live rows has none but its identity and hidden columns. An END row closes a
unit whose number of rows was not known beforehand: `__row` is that number.

A step may make several output rows of a source row. The block keeps one row for it, and the output rows lie in the
hidden column of `tasks/outputs.py`; then a block has no data columns of its own. Work always sees output rows. They
share their source row's end: where one of them fails, all are quarantined; where none is left, it is filtered.

How arrays lie in a column is `tasks/arrays.py`'s business. This file knows nothing of files, models or Ray.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tasks import outputs
from tasks.arrays import TENSOR, Column, same, to_arrow, to_numpy
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
SUFFIX = "__suffix"
MADE = re.compile(r"#[0-9.]+$")  # ends the names of a table's rows and of rows made of others, and of no file's


@dataclass
class Outcome:
    """What a step made of some live rows.

    columns: added or replaced, one value a row. keep: bool a row, False filters it. failed: row -> its error; whatever
    `columns` holds for such a row is ignored. made_of: int64, see `several`.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    keep: np.ndarray | None = None
    failed: Mapping[int, Exception] = field(default_factory=dict)
    made_of: np.ndarray | None = None


Work = Callable[[pa.Table], Outcome]


def several(
    columns: Mapping[str, Column],
    made_of: Sequence[int] | np.ndarray,
    suffixes: Sequence[object],
    failed: Mapping[int, Exception] | None = None,
) -> Outcome:
    """The outcome of a step that makes several rows of one: `columns` have a value for each row that it made.

    made_of: for each of these the row that it is made of, in ascending order; a row that is not named is filtered.
    suffixes: what tells it from the others of its row: `report.pdf` becomes `report.pdf#3`, and that `report.pdf#3.2`.
    The other columns are repeated, without bytes and arrays: those would fill the memory once for each row made.
    """
    marked = {**columns, SUFFIX: pa.array([str(suffix) for suffix in suffixes], pa.string())}
    return Outcome(marked, failed=failed or {}, made_of=np.asarray(made_of, np.int64))


def one_each(outcome: Outcome, count: int) -> Outcome:
    """The outcome of `several` where `count` rows became one each, or failed: the same rows with other columns."""
    made_of = np.asarray(outcome.made_of)
    columns = {name: scattered(to_arrow(v), made_of, count) for name, v in outcome.columns.items() if name != SUFFIX}
    return Outcome(columns, failed=outcome.failed)


def visible(block: pa.Table) -> pa.Table:
    """The block without its hidden columns."""
    return block.select([name for name in block.column_names if name not in (*HIDDEN.names, outputs.COLUMN)])


def live_rows(block: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """The visible columns of what is to be worked on or written, and of each row its source row's place in the block.

    These are the live rows of the block or, where a step made several of them, all of their output rows.
    """
    live = np.flatnonzero(block["__state"].to_numpy() == LIVE)
    if outputs.COLUMN in block.column_names:
        table, counts = outputs.unpacked(block[outputs.COLUMN].take(live))
        return table, np.repeat(live, counts)
    rows = visible(block)
    return (rows.take(live) if len(live) < len(block) else rows), live


def counts(block: pa.Table) -> np.ndarray:
    """How many rows each row of the block stands for (int64): its output rows, else 1."""
    if outputs.COLUMN not in block.column_names:
        return np.ones(len(block), np.int64)
    return np.maximum(outputs.counts(block[outputs.COLUMN]), 1)


def rows_each(block: pa.Table) -> float:
    """How many rows a live row stands for on average; 1 where there is none."""
    found = counts(block)[block["__state"].to_numpy() == LIVE]
    return float(found.mean()) if len(found) else 1.0


def without(block: pa.Table, names: Iterable[str]) -> pa.Table:
    """The block without some of its visible columns, in its output rows too."""
    block = block.drop_columns([name for name in names if name in block.column_names])
    if outputs.COLUMN not in block.column_names:
        return block
    table, places = live_rows(block)
    return _with_outputs(block, table.drop_columns([name for name in names if name in table.column_names]), places)


def first_rows(block: pa.Table, most: int) -> pa.Table:
    """A block of at most so many rows to be worked on, which are the first."""
    if outputs.COLUMN not in block.column_names:
        return block[:most]
    table, places = live_rows(block)
    cut = _with_outputs(block, table[:most], places[:most])
    return cut.filter(cut[outputs.COLUMN].is_valid())


def _with_outputs(block: pa.Table, table: pa.Table, places: np.ndarray) -> pa.Table:
    """`block` with the output rows `table`, each of the source row at its place; places ascend."""
    column = outputs.packed(table, np.bincount(places, minlength=len(block)))
    return _set(_settled_only(block), outputs.COLUMN, column)


def joined(blocks: Iterable[pa.Table]) -> pa.Table:
    """One block of many, whose columns may differ; without any, an empty one."""
    blocks = list(blocks)
    return pa.concat_tables(blocks, promote_options="permissive") if blocks else HIDDEN.empty_table()


def of_length(blocks: Iterable[pa.Table], length: int) -> Iterator[pa.Table]:
    """The same rows in blocks of `length`, the last one shorter; holds little more than one at a time.

    Where rows stand for several, a block ends with the one that fills it.
    """
    held: list[tuple[pa.Table, np.ndarray]] = []
    for block in blocks:
        held.append((block, counts(block)))
        while sum(int(each.sum()) for _, each in held) >= length:
            whole, each = joined(table for table, _ in held), np.concatenate([each for _, each in held])
            stop = int(np.searchsorted(np.cumsum(each), length)) + 1
            yield whole[:stop]
            held = [(whole[stop:], each[stop:])] if len(whole) > stop else []
    if held:
        yield joined(table for table, _ in held)


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


def apply(block: pa.Table, stage: str, work: Work, clock: Callable[[], float] = time.perf_counter) -> pa.Table:
    """`block` after `work` was done on its live rows, with what failed or was filtered marked.

    `work` sees a table of live rows without hidden columns. When it raises, the rows are split in halves, each tried
    afresh, until the culprits stand alone; those are quarantined. `OvernightError` is not a row's fault and propagates.
    clock: by which the work's seconds are measured.
    """
    started = clock()
    block = block.combine_chunks()
    rows, places = live_rows(block)
    if not len(rows):
        return _settled_only(block)
    done = _isolated(rows, work)
    for name in IDENTITY:
        done.columns.pop(name, None)
    size = sum(column.nbytes for column in done.columns.values())
    if done.made_of is not None or outputs.COLUMN in block.column_names:
        block = _several(block, rows, places, done, stage)
    else:
        block = _one_each(block, places, done, stage)
    block = measured(block, np.unique(places), stage, clock() - started, size)
    return block if (block["__state"].to_numpy() == LIVE).any() else _settled_only(block)


def _one_each(block: pa.Table, live: np.ndarray, done: "_Done", stage: str) -> pa.Table:
    """`block` after work on its live rows, each of which is one still."""
    for name, column in done.columns.items():
        block = _set(block, name, scattered(column, live, len(block)))
    if done.keep is not None and not done.keep.all():
        block = _filtered(block, live[~done.keep])
    return _with_errors(block, {int(live[row]): error for row, error in done.failed.items()}, stage)


def _several(block: pa.Table, rows: pa.Table, places: np.ndarray, done: "_Done", stage: str) -> pa.Table:
    """`block` after work on `rows`, each of the source row at its place, that made others of them or of their columns.

    A source row is quarantined whole where one of its output rows failed: then none of them is written, and the reason
    names the first that failed.
    """
    columns, live = dict(done.columns), np.unique(places)
    failed: dict[int, list[int]] = {}
    for row in sorted(done.failed):
        failed.setdefault(int(places[row]), []).append(row)
    errors = {place: _first_of(rows, found, done.failed, places) for place, found in failed.items()}
    if done.made_of is not None:
        suffixes = columns.pop(SUFFIX, pa.chunked_array([], pa.string())).to_pylist()
        light = [field.name for field in rows.schema if field.name not in columns and not _is_heavy(field.type)]
        rows, places = rows.select(light).take(done.made_of), places[done.made_of]
        names = [_appended(str(of), suffix) for of, suffix in zip(rows["row_id"].to_pylist(), suffixes, strict=True)]
        rows = _set(rows, "row_id", pa.array(names, pa.string()))
    for name, column in columns.items():
        rows = _set(rows, name, column)
    good = ~np.isin(places, list(errors))
    if done.keep is not None:
        good &= done.keep
    block = _with_outputs(block, rows.filter(pa.array(good)), places[good])
    gone = np.setdiff1d(live, [*places[good], *errors])
    return _with_errors(_filtered(block, gone), errors, stage)


def _first_of(rows: pa.Table, found: list[int], failed: Mapping[int, Exception], places: np.ndarray) -> Exception:
    """Why a source row is quarantined: its own error, or that of the first of its output rows that failed."""
    error = failed[found[0]]
    count = int(np.count_nonzero(places == places[found[0]]))
    if count == 1:
        return error
    name = rows["row_id"][found[0]].as_py()
    told = RowError(f"{name}: {error_message(error)} ({len(found)} of {count} rows made of this one failed)")
    told.__cause__ = error.__cause__ if isinstance(error, RowError) and error.__cause__ else error
    return told


def _appended(row_id: str, suffix: str) -> str:
    return f"{row_id}.{suffix}" if MADE.search(row_id) else f"{row_id}#{suffix}"


def _is_heavy(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == TENSOR


def _filtered(block: pa.Table, places: np.ndarray) -> pa.Table:
    state = block["__state"].to_numpy().copy()
    state[places] = FILTERED
    return _set(block, "__state", pa.array(state))


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
    """The columns of `outcome_of` code that fails for all rows of a call or for none."""
    return dict(outcome_of(function, rows, stage, what).columns)


def outcome_of(function: Callable[[dict[str, np.ndarray]], Any], rows: pa.Table, stage: str, what: str) -> Outcome:
    """User code on writable arrays, and what it returned, checked: a dict with one value a row in every column.

    Or an `Outcome`, from code that knows which rows failed: no other row is then run again to find them.

    Columns handed back as they were given are left out: they stay as they are, and keep an Arrow type that a detour
    through NumPy would blur (a nullable integer would come back as a float). Raises `ContractError` when the return
    value is not what Ray Data documents.
    """
    given = {name: to_numpy(rows[name], writable=True) for name in rows.column_names}
    returned = function(dict(given))
    failed = returned.failed if isinstance(returned, Outcome) else {}
    returned = returned.columns if isinstance(returned, Outcome) else returned
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
    return Outcome(columns, failed=failed)


def stacked(outcomes: Sequence[Outcome], lengths: Sequence[int]) -> Outcome:
    """The outcomes of several calls, on so many rows each that follow one another, as that of one call."""
    if len(outcomes) == 1:
        return outcomes[0]
    tables = [pa.table({name: to_arrow(values) for name, values in one.columns.items()}) for one in outcomes]
    table = pa.concat_tables(tables, promote_options="permissive")
    starts = np.cumsum([0, *lengths[:-1]])
    failed = {
        int(start) + row: error
        for start, one in zip(starts, outcomes, strict=True)
        for row, error in one.failed.items()
    }
    return Outcome({name: table[name] for name in table.column_names}, failed=failed)


@dataclass
class _Done:
    """An `Outcome` whose columns are Arrow's."""

    columns: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    keep: np.ndarray | None = None
    failed: dict[int, Exception] = field(default_factory=dict)
    made_of: np.ndarray | None = None

    def places(self, count: int) -> np.ndarray:
        """`made_of`, also where all rows failed before anything was made of them."""
        return np.setdiff1d(np.arange(count), list(self.failed)) if self.made_of is None else self.made_of


def _isolated(rows: pa.Table, work: Work) -> _Done:
    try:
        outcome = work(rows)
        columns = {name: pa.chunked_array([to_arrow(values)]) for name, values in outcome.columns.items()}
        return _Done(columns, outcome.keep, dict(outcome.failed), outcome.made_of)
    except OvernightError:
        raise
    except Exception as error:
        if len(rows) == 1:
            return _Done(failed={0: error})
    half = len(rows) // 2
    first, second = _isolated(rows[:half], work), _isolated(rows[half:], work)
    failed = first.failed | {row + half: error for row, error in second.failed.items()}
    sizes, made_of = (half, len(rows) - half), None
    if first.made_of is not None or second.made_of is not None:
        made = first.places(sizes[0]), second.places(sizes[1])
        sizes, made_of = (len(made[0]), len(made[1])), np.concatenate([made[0], made[1] + half])
    keep = None
    if first.keep is not None or second.keep is not None:
        keeps = (
            part.keep if part.keep is not None else np.ones(size, bool)
            for part, size in zip((first, second), sizes, strict=True)
        )
        keep = np.concatenate(list(keeps))
    return _Done(_stack(first.columns, sizes[0], second.columns, sizes[1]), keep, failed, made_of)


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


def scattered(values: Column, places: np.ndarray, length: int) -> pa.Array | pa.ChunkedArray:
    """A column of `length` rows with `values` at these places, which ascend, and nulls elsewhere."""
    column = values if isinstance(values, pa.ChunkedArray) else to_arrow(values)
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
