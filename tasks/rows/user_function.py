"""Call user code on the rows of a batch, and check what it returns."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import ContractError, shortened
from overnight.tasks.rows import user_values
from overnight.tasks.rows.blocks import IDENTITY
from overnight.tasks.rows.plain_values import plain_column
from overnight.tasks.rows.result import Outcome
from overnight.tasks.rows.returned_columns import returned_columns
from overnight.tasks.rows.tensors import Column, to_arrow, to_numpy
from overnight.tasks.rows.user_values import owned, snapshot

COLUMNS_NAMED = 30  # in the message for a missing column


def outcome_of(
    function: Callable[[dict[str, np.ndarray]], Any],
    rows: pa.Table,
    stage: str,
    what: str,
    given_as: Callable[[str, pa.ChunkedArray], np.ndarray] = lambda _, column: user_values.given(column),
    as_cells: Collection[str] = (),
) -> Outcome:
    """Call `function` with the rows' columns as writable arrays, and return its checked result with one value per row.

    Columns in `as_cells` become lists. Raise `ContractError` for a wrong form, `InvalidValues` for an impossible value.
    """
    batch = {name: given_as(name, rows[name]) for name in rows.column_names}
    try:
        outcome = returned_columns(function(batch), rows, stage, what)
    except KeyError as error:
        name_columns(error, rows.column_names)
        raise
    columns: dict[str, Column] = {}
    for name, values in outcome.columns.items():
        new_values = _changed(name, values, rows)
        if new_values is not None:
            columns[name] = _cells(new_values) if name in as_cells else owned(name, new_values)
    _refuse_other_ids(columns, rows, stage, what)
    return Outcome(columns, failed=outcome.failed)


def _changed(name: str, values: Column, rows: pa.Table) -> Column | None:
    """Return the values as `plain_column` returns them, or None if the rows have the same values in this column."""
    if name not in rows.column_names:
        return plain_column(name, values)
    if user_values.changed(values, rows[name]) is None:
        return None
    return user_values.changed(plain_column(name, values), rows[name])


def _cells(values: Column) -> list[Any]:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = to_numpy(values)
    return list(map(snapshot, values))


class _Unquoted(str):
    """The message of a `KeyError`, whose text is the `repr` of its argument."""

    def __repr__(self) -> str:
        return str(self)


def name_columns(error: KeyError, columns: list[str]) -> None:
    """Add the names of the batch's columns to a `KeyError` that the user's code raised for a missing column.

    Its message becomes, for example, `'lable'; the columns are row_id, label`. Other errors stay unchanged.
    """
    missing = error.args[0] if len(error.args) == 1 else None
    if isinstance(missing, str) and not isinstance(missing, _Unquoted) and missing not in columns:
        error.args = (_Unquoted(f"{missing!r}; the columns are {shortened(columns, COLUMNS_NAMED)}"),)


def _refuse_other_ids(columns: Mapping[str, Column], rows: pa.Table, stage: str, what: str) -> None:
    """Raise `ContractError` if the code returned other ids or URIs: after a sort of a frame, or of its own."""
    for name in IDENTITY:
        if name not in columns:
            continue
        before = []
        if name in rows.column_names:
            before = rows[name].to_pylist()
        after = to_arrow(columns[name]).to_pylist()
        if after != before and set(after) == set(before):
            problem = f"the rows come back in another order: the first is {after[0]!r}, expected {before[0]!r}"
            remedy = "Return the rows in the order of the batch; other columns keep it"
        else:
            problem = f"expected {name} unchanged, because Overnight names the rows, found {after[0]!r}"
            remedy = "Return the values in a column of another name"
        raise ContractError(f"{what}: {problem}. {remedy}.", stage)
