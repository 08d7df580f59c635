"""Run work on the rows of a block, and quarantine the rows on which it fails.

Work is a function from rows to an `Outcome` (`tasks/rows/result.py`). It does not use blocks.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import filterfalse

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import OvernightError, RowError
from overnight.tasks.rows.arrow_types import holds_files
from overnight.tasks.rows.blocks import (
    IDENTITY,
    drop_live_columns,
    filtered,
    has_outputs,
    is_live,
    live_rows,
    measured,
    noted_left_out,
    ordered,
    scatter,
    with_column,
    with_errors,
    with_outputs,
)
from overnight.tasks.rows.error_text import cause_of, error_message
from overnight.tasks.rows.plain_values import arrow_column
from overnight.tasks.rows.result import SUFFIX, Outcome, Work, stacked
from overnight.tasks.rows.tensors import TENSOR, rank

# ends the `row_id` of a table's row and of an output row, never of a whole file
NUMBERED = re.compile(r"#[0-9.]+$")


def apply(
    block: pa.Table,
    stage: str,
    work: Work,
    clock: Callable[[], float] = time.perf_counter,
    errors: list[Exception] | None = None,
    keep: Sequence[str] = (),
) -> pa.Table:
    """Run `work` on the live rows of a block, and return the block with the results. Append row errors to `errors`.

    Rows made of one get the heavy columns in `keep`, too. An `OvernightError` propagates, because no row caused it.
    """
    start = clock()
    block = block.combine_chunks()
    rows, sources = live_rows(block)
    if not len(rows):
        return drop_live_columns(block)
    outcome = _isolated(rows, work, stage)
    if errors is not None:
        errors.extend(outcome.failed.values())
    columns = dict(outcome.columns)
    for name in IDENTITY:
        columns.pop(name, None)
    outcome = replace(outcome, columns=columns)
    if outcome.made_of is not None or has_outputs(block):
        block = _with_several(block, rows, sources, outcome, stage, keep)
    else:
        block = _with_one_each(block, sources, outcome, stage)
    if outcome.order is not None:
        block = ordered(block, outcome.order)
    size = sum(column.nbytes for column in columns.values())
    block = measured(block, np.unique(sources), stage, clock() - start, size)
    return block if is_live(block).any() else drop_live_columns(block)


def _with_one_each(block: pa.Table, live: np.ndarray, outcome: Outcome, stage: str) -> pa.Table:
    """Return `block` after work that made exactly one row of each live row."""
    for name, column in outcome.columns.items():
        block = with_column(block, name, scatter(column, live, len(block)))
    if outcome.keep is not None and not outcome.keep.all():
        block = filtered(block, live[~outcome.keep])
    return with_errors(block, {int(live[row]): error for row, error in outcome.failed.items()}, stage)


def _with_several(
    block: pa.Table, rows: pa.Table, sources: np.ndarray, outcome: Outcome, stage: str, keep: Sequence[str]
) -> pa.Table:
    """Return `block` after work on `rows` that made other rows, or worked on nested output rows.

    `sources` has the number of each row's source row. If one output row fails, its whole source row is quarantined.
    """
    live = np.unique(sources)
    errors = _errors_by_source(rows, sources, outcome.failed)
    columns = dict(outcome.columns)
    if outcome.made_of is not None:
        suffixes = columns.pop(SUFFIX, pa.chunked_array([], pa.string())).to_pylist()
        heavy, copies = [], []
        for name in filterfalse(columns.__contains__, rows.column_names):
            if name not in keep and _is_heavy(rows[name]):
                heavy.append(name)
            else:
                copies.append(name)
        block = noted_left_out(block, heavy)
        rows = rows.select(copies).take(outcome.made_of)
        sources = sources[outcome.made_of]
        row_ids = rows["row_id"].to_pylist()
        names = [_appended(str(name), suffix) for name, suffix in zip(row_ids, suffixes, strict=True)]
        rows = with_column(rows, "row_id", pa.array(names, pa.string()))
    for name, column in columns.items():
        rows = with_column(rows, name, column)
    stays = ~np.isin(sources, list(errors))
    if outcome.keep is not None:
        stays &= outcome.keep
    block = with_outputs(block, rows.filter(pa.array(stays)), sources[stays])
    without_rows = np.setdiff1d(live, [*sources[stays], *errors])
    return with_errors(filtered(block, without_rows), errors, stage)


def _errors_by_source(rows: pa.Table, sources: np.ndarray, errors: Mapping[int, Exception]) -> dict[int, Exception]:
    """Return source row -> its own error, or that of its first failed output row."""
    rows_by_source: dict[int, list[int]] = {}
    for row in sorted(errors):
        rows_by_source.setdefault(int(sources[row]), []).append(row)
    reasons: dict[int, Exception] = {}
    for source, numbers in rows_by_source.items():
        first = errors[numbers[0]]
        count = int(np.count_nonzero(sources == source))
        reasons[source] = first
        if count > 1:
            row_id = rows["row_id"][numbers[0]].as_py()
            message = f"{row_id}: {error_message(first)} ({len(numbers)} of {count} rows made of this one failed)"
            reasons[source] = RowError(message)
            reasons[source].__cause__ = cause_of(first)
    return reasons


def _appended(row_id: str, suffix: str) -> str:
    return f"{row_id}.{suffix}" if NUMBERED.search(row_id) else f"{row_id}#{suffix}"


def _is_heavy(column: pa.ChunkedArray) -> bool:
    return holds_files(column.type) or (column.type == TENSOR and (rank(column) or 0) > 1)


def _isolated(rows: pa.Table, work: Work, stage: str) -> Outcome:
    """Return the outcome of work, with columns in Arrow. Rows on which it raises are in `failed`."""
    try:
        outcome = work(rows)
        columns = {name: pa.chunked_array([arrow_column(name, values)]) for name, values in outcome.columns.items()}
        return replace(outcome, columns=columns)
    except OvernightError:
        raise
    except (Exception, SystemExit) as error:
        if len(rows) == 1:
            return Outcome(failed={0: _as_exception(error)})
    half = len(rows) // 2
    outcomes = [_isolated(rows[:half], work, stage), _isolated(rows[half:], work, stage)]
    return stacked(outcomes, [half, len(rows) - half], stage, rows)


def _as_exception(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    row_error = RowError(f"the code of a step or a model called sys.exit({error})")
    row_error.__cause__ = error  # a step that exits fails its row, not this process
    return row_error
