"""Work on the rows of a block: what it sees, what it gives back, and what becomes of rows that it fails.

Work is a function of a table of live rows, without hidden columns, to an `Outcome`. It may raise: then `apply` finds
out whose fault that is. It knows nothing of blocks, and blocks (`tasks/rows/blocks.py`) know nothing of work.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import ContractError, OvernightError, RowError
from overnight.tasks.rows import nested_rows, user_values
from overnight.tasks.rows.blocks import (
    IDENTITY,
    LIVE,
    error_message,
    filtered,
    live_rows,
    measured,
    noted_left_out,
    scattered,
    settled_only,
    with_column,
    with_errors,
    with_outputs,
)
from overnight.tasks.rows.tensors import TENSOR, Column, to_arrow

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
    The other columns are repeated, without bytes and arrays: those would fill the memory once for each row made. The
    receipt names them.
    """
    marked = {**columns, SUFFIX: pa.array([str(suffix) for suffix in suffixes], pa.string())}
    return Outcome(marked, failed=failed or {}, made_of=np.asarray(made_of, np.int64))


def one_each(outcome: Outcome, count: int) -> Outcome:
    """The outcome of `several` where `count` rows became one each, or failed: the same rows with other columns."""
    made_of = np.asarray(outcome.made_of)
    columns = {name: scattered(to_arrow(v), made_of, count) for name, v in outcome.columns.items() if name != SUFFIX}
    return Outcome(columns, failed=outcome.failed)


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
        return settled_only(block)
    done = _isolated(rows, work, stage)
    for name in IDENTITY:
        done.columns.pop(name, None)
    size = sum(column.nbytes for column in done.columns.values())
    if done.made_of is not None or nested_rows.COLUMN in block.column_names:
        block = _several(block, rows, places, done, stage)
    else:
        block = _one_each(block, places, done, stage)
    block = measured(block, np.unique(places), stage, clock() - started, size)
    return block if (block["__state"].to_numpy() == LIVE).any() else settled_only(block)


def _one_each(block: pa.Table, live: np.ndarray, done: "_Done", stage: str) -> pa.Table:
    """`block` after work on its live rows, each of which is one still."""
    for name, column in done.columns.items():
        block = with_column(block, name, scattered(column, live, len(block)))
    if done.keep is not None and not done.keep.all():
        block = filtered(block, live[~done.keep])
    return with_errors(block, {int(live[row]): error for row, error in done.failed.items()}, stage)


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
        others = [field for field in rows.schema if field.name not in columns]
        light = [field.name for field in others if not _is_heavy(field.type)]
        block = noted_left_out(block, (field.name for field in others if _is_heavy(field.type)))
        rows, places = rows.select(light).take(done.made_of), places[done.made_of]
        names = [_appended(str(of), suffix) for of, suffix in zip(rows["row_id"].to_pylist(), suffixes, strict=True)]
        rows = with_column(rows, "row_id", pa.array(names, pa.string()))
    for name, column in columns.items():
        rows = with_column(rows, name, column)
    good = ~np.isin(places, list(errors))
    if done.keep is not None:
        good &= done.keep
    block = with_outputs(block, rows.filter(pa.array(good)), places[good])
    gone = np.setdiff1d(live, [*places[good], *errors])
    return with_errors(filtered(block, gone), errors, stage)


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


def call(function: Callable[[dict[str, np.ndarray]], Any], rows: pa.Table, stage: str, what: str) -> dict[str, Column]:
    """The columns of `outcome_of` code that fails for all rows of a call or for none."""
    return dict(outcome_of(function, rows, stage, what).columns)


def outcome_of(
    function: Callable[[dict[str, np.ndarray]], Any],
    rows: pa.Table,
    stage: str,
    what: str,
    given_as: Callable[[str, pa.ChunkedArray], np.ndarray] = lambda _, column: user_values.given(column),
) -> Outcome:
    """User code on writable arrays, and what it returned, checked: a dict with one value a row in every column.

    Or an `Outcome`, from code that knows which rows failed: no other row is then run again to find them.

    Columns whose values come back as they were given are left out: they keep their Arrow type, which NumPy and pandas
    may not know. given_as: what the code gets of a column. Raises `ContractError` when the return value is not what
    Ray Data documents.
    """
    given = {name: given_as(name, rows[name]) for name in rows.column_names}
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
        new = user_values.changed(values, rows[name]) if name in given else values
        if new is not None:
            columns[name] = new
    return Outcome(columns, failed=failed)


def stacked(outcomes: Sequence[Outcome], lengths: Sequence[int]) -> Outcome:
    """The outcomes of several calls, on so many rows each that follow one another, as that of one call."""
    if len(outcomes) == 1:
        return outcomes[0]
    tables = [pa.table({name: to_arrow(values) for name, values in one.columns.items()}) for one in outcomes]
    table = _concatenated(tables, "infer")
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


def _isolated(rows: pa.Table, work: Work, stage: str) -> _Done:
    try:
        outcome = work(rows)
        columns = {name: pa.chunked_array([_converted(name, values)]) for name, values in outcome.columns.items()}
        return _Done(columns, outcome.keep, dict(outcome.failed), outcome.made_of)
    except OvernightError:
        raise
    except (Exception, SystemExit) as error:  # a step that calls sys.exit means its row, not this process
        if len(rows) == 1:
            return _Done(failed={0: _plain(error)})
    half = len(rows) // 2
    first, second = _isolated(rows[:half], work, stage), _isolated(rows[half:], work, stage)
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
    return _Done(_stack(first.columns, sizes[0], second.columns, sizes[1], stage), keep, failed, made_of)


def _converted(name: str, values: Column) -> pa.Array:
    """`to_arrow`, with an error that names the column."""
    try:
        return to_arrow(values)
    except (pa.ArrowException, OverflowError) as error:
        raise RowError(
            f"column {name!r}: expected values of one type, found others ({error}). Return one type, or JSON text."
        ) from error


def _concatenated(tables: Sequence[pa.Table], stage: str) -> pa.Table:
    """The tables as one. Raises `ContractError` for a column whose types no single type holds."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise ContractError(_clash(tables) or f"the rows differ in type: {error}.", stage) from error


def _clash(tables: Sequence[pa.Table]) -> str:
    for name in dict.fromkeys(name for table in tables for name in table.column_names):
        kinds = list(dict.fromkeys(table.schema.field(name).type for table in tables if name in table.column_names))
        try:
            pa.unify_schemas([pa.schema([(name, kind)]) for kind in kinds], promote_options="permissive")
        except pa.ArrowException:
            return (
                f"column {name!r}: expected values of one type, found {' and '.join(map(str, kinds))}. "
                "Return one type, or JSON text (json.dumps)."
            )
    return ""


def _plain(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    told = RowError(f"the code of a step or a model called sys.exit({error})")
    told.__cause__ = error
    return told


def _stack(
    first: dict[str, pa.ChunkedArray],
    first_rows: int,
    second: dict[str, pa.ChunkedArray],
    second_rows: int,
    stage: str,
) -> dict[str, pa.ChunkedArray]:
    if not first and not second:
        return {}
    tables = [
        pa.table(columns) if columns else pa.table({"__padding": pa.nulls(count)})
        for columns, count in ((first, first_rows), (second, second_rows))
    ]
    joined = _concatenated(tables, stage)
    return {name: joined[name] for name in joined.column_names if name != "__padding"}
