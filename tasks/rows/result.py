"""The result of work on the rows of a block: an `Outcome`, and functions that make and join outcomes.

Work is a function from a table of live rows, without hidden columns, to an `Outcome`. If it raises, `apply.py` finds
the rows on which it fails.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import columns_of
from overnight.tasks.rows.blocks import scatter
from overnight.tasks.rows.tensors import Column, to_arrow

SUFFIX = "__suffix"
PADDING = "__padding"  # a column of nulls, which gives a table without columns its number of rows


@dataclass
class Outcome:
    """The output of a step for some live rows."""

    # new or replaced columns, one value per row
    columns: Mapping[str, Column] = field(default_factory=dict)
    keep: np.ndarray | None = None  # a bool per row, False to filter the row; None keeps all rows
    # by row; values of these rows are ignored
    failed: Mapping[int, Exception] = field(default_factory=dict)
    # int64, if the step made several rows of one: the number of the row that each row of `columns` was made of.
    made_of: np.ndarray | None = None
    # the data columns that stay, in this order; None keeps all columns
    order: Sequence[str] | None = None


Work = Callable[[pa.Table], Outcome]


def several(
    columns: Mapping[str, Column],
    made_of: Sequence[int] | np.ndarray,
    suffixes: Sequence[object],
    failed: Mapping[int, Exception] | None = None,
) -> Outcome:
    """Return the outcome of a step that makes several output rows of one row, with the columns of `Outcome`.

    `suffixes` distinguish the output rows of a row: `report.pdf` becomes `report.pdf#3`, and that `report.pdf#3.2`.
    """
    # Output rows also get the light columns of their row. Copies of heavy ones, if they are not published, would
    # fill the memory.
    columns = {**columns, SUFFIX: pa.array(list(map(str, suffixes)), pa.string())}
    return Outcome(columns, failed=failed or {}, made_of=np.asarray(made_of, np.int64))


def one_each(outcome: Outcome, count: int) -> Outcome:
    """Convert an outcome of `several` to one that makes no new rows, so that rows keep their `row_id`.

    Each of the `count` rows must have become exactly one row, or failed.
    """
    sources = np.asarray(outcome.made_of)
    columns = {}
    for name, values in outcome.columns.items():
        if name != SUFFIX:
            columns[name] = scatter(values, sources, count)
    return Outcome(columns, failed=outcome.failed)


def stacked(
    outcomes: Sequence[Outcome], lengths: Sequence[int], stage: str = "infer", before: pa.Table | None = None
) -> Outcome:
    """Join the outcomes of calls, each on the next `lengths` rows of `before`. Columns that it did not replace stay.

    Raise `ContractError`, with this stage, if a column's types have no common type.
    """
    if len(outcomes) == 1:
        return outcomes[0]
    makes_rows = any(outcome.made_of is not None for outcome in outcomes)
    replaced = {name for outcome in outcomes for name in outcome.columns}
    replaced.intersection_update(before.column_names if before else ())
    tables: list[pa.Table] = []
    sources: list[np.ndarray] = []
    keeps: list[np.ndarray] = []
    errors: dict[int, Exception] = {}
    order: Sequence[str] | None = None
    start = 0
    for outcome, length in zip(outcomes, lengths, strict=True):
        rows = outcome.made_of if makes_rows else np.arange(length)
        if rows is None:
            rows = np.setdiff1d(np.arange(length), list(outcome.failed))
        sources.append(start + rows)
        keep = outcome.keep
        if keep is None:
            keep = np.ones(len(rows), bool)
        keeps.append(keep)
        if order is None:
            order = outcome.order
        arrays: dict[str, Any] = {name: to_arrow(values) for name, values in outcome.columns.items()}
        if before and len(outcome.failed) < length:
            for name in replaced - arrays.keys():
                arrays[name] = before[name].take(pa.array(start + rows))
        tables.append(pa.table(arrays or {PADDING: pa.nulls(len(rows))}))
        for row, error in outcome.failed.items():
            errors[start + row] = error
        start += length
    table = concatenated(tables, stage)
    columns = columns_of(table)
    columns.pop(PADDING, None)
    joined = Outcome(columns, failed=errors, order=order)
    if any(outcome.keep is not None for outcome in outcomes):
        joined.keep = np.concatenate(keeps)
    if makes_rows:
        joined.made_of = np.concatenate(sources)
    return joined


def concatenated(tables: Sequence[pa.Table], stage: str) -> pa.Table:
    """Return the tables as one. Raise `ContractError`, with this stage, if a column's types have no common type."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise ContractError(_type_conflict(tables) or f"the rows differ in type: {error}.", stage) from error


def _type_conflict(tables: Sequence[pa.Table]) -> str:
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    for name in names:
        parts = [table.select([name]) for table in tables if name in table.column_names]
        try:
            pa.concat_tables(parts, promote_options="permissive")
        except pa.ArrowException:
            kinds = dict.fromkeys(str(part.schema.field(name).type) for part in parts)
            return (
                f"column {name!r}: expected values of one type, found {' and '.join(kinds)}. "
                "Return one type, or JSON text (json.dumps)."
            )
    return ""
