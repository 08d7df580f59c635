"""The work of a step whose results are remembered by row: only unknown rows reach the step.

The rows that a step makes of one row are one value in the memory, as they are in a block.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import ContractError
from overnight.tasks.memory.known_rows import KnownRows
from overnight.tasks.memory.made_rows import Made
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.rows import nested_rows
from overnight.tasks.rows.arrow_types import columns_of
from overnight.tasks.rows.blocks import existing
from overnight.tasks.rows.plain_values import arrow_column
from overnight.tasks.rows.result import Outcome, Work, concatenated


@lru_cache(maxsize=8)
def known_rows(memory: ModelMemory, attempt: str) -> KnownRows:
    """Return the rows that are known when an attempt begins; its tasks in one process share them."""
    return KnownRows(memory, "")


def remembered_work(known: KnownRows, columns: list[str] | None, build: Callable[[], Work], calls: list[Made]) -> Work:
    """Return the step's work, which adds new results to `calls`. The step gets `columns`, or all columns.

    The step is built when the first unknown row comes.
    """

    def work(table: pa.Table) -> Outcome:
        rows = table if columns is None else table.select(existing(table, columns))

        def call(numbers: np.ndarray) -> Outcome:
            return _with_one_each(build()(rows.take(numbers)), len(numbers), known.memory.name)

        outcome, new = known.completed(rows, call)
        if new and (new.known or new.members):
            calls.append(new)
        return _with_several(outcome, rows)

    return work


def _with_one_each(outcome: Outcome, count: int, name: str) -> Outcome:
    """Return the outcome with all rows made of one row as one value."""
    if outcome.keep is not None or outcome.order is not None:
        raise ContractError(
            f"{name}: remember: expected a step that neither drops rows nor orders columns, found one that does. Leave "
            "out remember.",
            "preprocess",
        )
    if outcome.made_of is None:
        return outcome
    table = pa.table({name: arrow_column(name, values) for name, values in outcome.columns.items()})
    counts = np.bincount(outcome.made_of, minlength=count)
    return Outcome({nested_rows.COLUMN: nested_rows.packed(table, counts)}, failed=outcome.failed)


def _with_several(outcome: Outcome, rows: pa.Table) -> Outcome:
    """Return the outcome with the rows that `_with_one_each` packed.

    A column that some results replace, and others leave as it was, has the values of `rows` for the latter.
    """
    if nested_rows.COLUMN not in outcome.columns:
        return outcome
    column = pa.chunked_array([arrow_column(nested_rows.COLUMN, outcome.columns[nested_rows.COLUMN])])
    sources = np.flatnonzero(column.is_valid().to_numpy())
    tables = nested_rows.tables(column.drop_null())
    made_of = np.repeat(sources, list(map(len, tables)))
    replaced = {name for table in tables for name in table.column_names}.intersection(rows.column_names)
    for number, source in enumerate(sources):
        for name in sorted(replaced.difference(tables[number].column_names)):
            values = rows[name].take(np.repeat(source, len(tables[number])))
            tables[number] = tables[number].append_column(name, values)
    columns = columns_of(concatenated(tables, "preprocess"))
    return Outcome(columns, failed=outcome.failed, made_of=made_of)
