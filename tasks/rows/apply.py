"""Run work on the rows of a block, and quarantine the rows on which it fails.

Work is a function from rows to an `Outcome` (`tasks/rows/result.py`). It does not use blocks, and
`tasks/rows/blocks.py` does not use work.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import OvernightError, RowError
from overnight.tasks.rows import nested_rows
from overnight.tasks.rows.blocks import (
    IDENTITY,
    LIVE,
    drop_live_columns,
    filtered,
    live_rows,
    measured,
    noted_left_out,
    ordered,
    scatter,
    with_column,
    with_errors,
    with_outputs,
)
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.rows.file_columns import holds_files
from overnight.tasks.rows.plain_values import arrow_column
from overnight.tasks.rows.result import SUFFIX, Work, concatenated
from overnight.tasks.rows.tensors import TENSOR, rank

MADE = re.compile(r"#[0-9.]+$")  # ends the `row_id` of a table's row and of an output row, never that of a whole file


def apply(
    block: pa.Table,
    stage: str,
    work: Work,
    clock: Callable[[], float] = time.perf_counter,
    errors: list[Exception] | None = None,
    keep: Sequence[str] = (),
) -> pa.Table:
    """Run `work` on the live rows of a block, and return the block with the results.

    `work` gets a table of live rows without hidden columns. If it raises, the rows are halved and each half runs again,
    until each failing row is alone and is quarantined. An `OvernightError` propagates, because no row caused it.

    `stage` is the stage of the work. `clock` returns a time in seconds. If `errors` is not None, the error of each
    failed row is appended to it. If the work makes several rows of one, these get the columns `keep` too, although they
    may be heavy (see `result.several`).
    """
    started = clock()
    block = block.combine_chunks()
    rows, places = live_rows(block)
    if not len(rows):
        return drop_live_columns(block)
    done = _isolated(rows, work, stage)
    order = done.order
    if errors is not None:
        errors.extend(done.failed.values())
    for name in IDENTITY:
        done.columns.pop(name, None)
    size = sum(column.nbytes for column in done.columns.values())
    if done.made_of is not None or nested_rows.COLUMN in block.column_names:
        block = _several(block, rows, places, done, stage, keep)
    else:
        block = _one_each(block, places, done, stage)
    if order is not None:
        block = ordered(block, order)
    reached = np.unique(places) if nested_rows.COLUMN in block.column_names else places
    block = measured(block, reached, stage, clock() - started, size)
    return block if (block["__state"].to_numpy() == LIVE).any() else drop_live_columns(block)


def _one_each(block: pa.Table, live: np.ndarray, done: "_Done", stage: str) -> pa.Table:
    """Return `block` after work that made exactly one row of each live row."""
    for name, column in done.columns.items():
        block = with_column(block, name, scatter(column, live, len(block)))
    if done.keep is not None and not done.keep.all():
        block = filtered(block, live[~done.keep])
    return with_errors(block, {int(live[row]): error for row, error in done.failed.items()}, stage)


def _several(
    block: pa.Table, rows: pa.Table, places: np.ndarray, done: "_Done", stage: str, keep: Sequence[str]
) -> pa.Table:
    """Return `block` after work on `rows` that made other rows, or worked on nested output rows.

    `places` has the place of each row's source row in the block. If one output row of a source row failed, the whole
    source row is quarantined and none of its output rows is written. The reason names the first that failed.
    """
    columns, live = dict(done.columns), np.unique(places)
    failed: dict[int, list[int]] = {}
    for row in sorted(done.failed):
        failed.setdefault(int(places[row]), []).append(row)
    errors = {place: _first_of(rows, found, done.failed, places) for place, found in failed.items()}
    if done.made_of is not None:
        suffixes = columns.pop(SUFFIX, pa.chunked_array([], pa.string())).to_pylist()
        others = [name for name in rows.column_names if name not in columns]
        heavy = [name for name in others if name not in keep and _is_heavy(rows[name])]
        block = noted_left_out(block, heavy)
        light = [name for name in others if name not in heavy]
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
    """Return why a source row is quarantined: its own error, or that of its first failed output row."""
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


def _is_heavy(column: pa.ChunkedArray) -> bool:
    return holds_files(column.type) or (column.type == TENSOR and (rank(column) or 0) > 1)


@dataclass
class _Done:
    """An `Outcome` with Arrow columns."""

    columns: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    keep: np.ndarray | None = None
    failed: dict[int, Exception] = field(default_factory=dict)
    made_of: np.ndarray | None = None
    order: Sequence[str] | None = None

    def places(self, count: int) -> np.ndarray:
        """Return `made_of`; if it is None, the places of the `count` rows that did not fail."""
        return np.setdiff1d(np.arange(count), list(self.failed)) if self.made_of is None else self.made_of


def _isolated(rows: pa.Table, work: Work, stage: str) -> _Done:
    try:
        outcome = work(rows)
        columns = {name: pa.chunked_array([arrow_column(name, values)]) for name, values in outcome.columns.items()}
        return _Done(columns, outcome.keep, dict(outcome.failed), outcome.made_of, outcome.order)
    except OvernightError:
        raise
    except (Exception, SystemExit) as error:  # a step that calls sys.exit fails its row, not this process
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
    order = first.order if first.order is not None else second.order
    return _Done(_stack(first.columns, sizes[0], second.columns, sizes[1], stage), keep, failed, made_of, order)


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
    joined = concatenated(tables, stage)
    return {name: joined[name] for name in joined.column_names if name != "__padding"}
