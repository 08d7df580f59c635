"""The result of work on the rows of a block: an `Outcome`, and how to join several rows or several calls into one.

Work is a function from a table of live rows, without hidden columns, to an `Outcome`. It may raise: `apply.py` then
finds the rows on which it fails.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.blocks import scatter
from overnight.tasks.rows.tensors import Column, to_arrow

SUFFIX = "__suffix"


@dataclass
class Outcome:
    """The output of a step for some live rows.

    `columns` are added or replaced, one value per row. `keep` has a bool per row; False filters it. `failed` maps rows
    to errors; values of `columns` for such a row are ignored. `made_of` is int64, see `several`. `order` names
    the columns that stay, in this order, besides the columns that name rows; None keeps all as they come.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    keep: np.ndarray | None = None
    failed: Mapping[int, Exception] = field(default_factory=dict)
    made_of: np.ndarray | None = None
    order: Sequence[str] | None = None


Work = Callable[[pa.Table], Outcome]


def several(
    columns: Mapping[str, Column],
    made_of: Sequence[int] | np.ndarray,
    suffixes: Sequence[object],
    failed: Mapping[int, Exception] | None = None,
) -> Outcome:
    """Return the outcome of a step that makes several rows of one: `columns` have a value for each row that it made.

    `made_of` has for each of these the row that it is made of, in ascending order; a row without an entry is filtered.
    `suffixes` distinguish the rows made of one row: `report.pdf` becomes `report.pdf#3`, and that becomes
    `report.pdf#3.2`. The other columns are repeated, without bytes and arrays: those would fill the memory once for
    each row made. The receipt names them.
    """
    marked = {**columns, SUFFIX: pa.array([str(suffix) for suffix in suffixes], pa.string())}
    return Outcome(marked, failed=failed or {}, made_of=np.asarray(made_of, np.int64))


def one_each(outcome: Outcome, count: int) -> Outcome:
    """Return the outcome of `several` for `count` rows that became one each, or failed.

    The rows are the same; the other columns are dropped.
    """
    made_of = np.asarray(outcome.made_of)
    columns = {name: scatter(to_arrow(v), made_of, count) for name, v in outcome.columns.items() if name != SUFFIX}
    return Outcome(columns, failed=outcome.failed)


def stacked(outcomes: Sequence[Outcome], lengths: Sequence[int]) -> Outcome:
    """Return the outcomes of several calls as that of one call; `lengths` has the rows of each call, in order."""
    if len(outcomes) == 1:
        return outcomes[0]
    tables = [pa.table({name: to_arrow(values) for name, values in one.columns.items()}) for one in outcomes]
    table = concatenated(tables, "infer")
    starts = np.cumsum([0, *lengths[:-1]])
    failed = {
        int(start) + row: error
        for start, one in zip(starts, outcomes, strict=True)
        for row, error in one.failed.items()
    }
    return Outcome({name: table[name] for name in table.column_names}, failed=failed)


def concatenated(tables: Sequence[pa.Table], stage: str) -> pa.Table:
    """Return the tables as one. Raise `ContractError` for a column whose types no single type holds."""
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
