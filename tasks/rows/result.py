"""The result of work on the rows of a block: an `Outcome`, and functions that make and join outcomes.

Work is a function from a table of live rows, without hidden columns, to an `Outcome`. If it raises, `apply.py` finds
the rows on which it fails.
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

    `columns` maps the names of new or replaced columns to values, one per row. `keep` has a bool per row, False to
    filter the row; None keeps all rows. `failed` maps the number of a failed row to its error; its values in `columns`
    are ignored. `order` names the data columns that stay, in this order; None keeps all columns in their order.

    `made_of` (int64) is None unless the step made several rows of one. It has, for each row of `columns`, the number of
    the row that it was made of.
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
    """Return the outcome of a step that makes several output rows of one row.

    `columns` have one value per output row. `made_of` has the number of the row that each output row comes from,
    ascending; a row whose number is missing is filtered. `suffixes` distinguish the output rows of a row: `report.pdf`
    becomes `report.pdf#3`, and that becomes `report.pdf#3.2`. `failed` maps the number of a failed row to its error.

    Output rows also get the other columns of their row. Bytes and arrays of two or more dimensions are excepted, unless
    `sink.keep_columns` names them, because their copies would fill the memory. The receipt names the excepted columns.
    """
    marked = {**columns, SUFFIX: pa.array([str(suffix) for suffix in suffixes], pa.string())}
    return Outcome(marked, failed=failed or {}, made_of=np.asarray(made_of, np.int64))


def one_each(outcome: Outcome, count: int) -> Outcome:
    """Convert an outcome of `several` to one that makes no new rows, so that rows keep their `row_id`.

    Each of the `count` rows must have become exactly one row, or failed.
    """
    made_of = np.asarray(outcome.made_of)
    columns = {name: scatter(to_arrow(v), made_of, count) for name, v in outcome.columns.items() if name != SUFFIX}
    return Outcome(columns, failed=outcome.failed)


def stacked(outcomes: Sequence[Outcome], lengths: Sequence[int]) -> Outcome:
    """Join the outcomes of several calls, each on the next rows of a table, into one with `columns` and `failed`.

    `lengths` has the number of rows of each call. Raise `ContractError` if a column's types have no common type.
    """
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
    """Return the tables as one. Raise `ContractError`, with this stage, if a column's types have no common type."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise ContractError(_clash(tables) or f"the rows differ in type: {error}.", stage) from error


def _clash(tables: Sequence[pa.Table]) -> str:
    for name in dict.fromkeys(name for table in tables for name in table.column_names):
        parts = [table.select([name]) for table in tables if name in table.column_names]
        kinds = list(dict.fromkeys(part.schema.field(name).type for part in parts))
        try:
            pa.concat_tables(parts, promote_options="permissive")
        except pa.ArrowException:
            return (
                f"column {name!r}: expected values of one type, found {' and '.join(map(str, kinds))}. "
                "Return one type, or JSON text (json.dumps)."
            )
    return ""
