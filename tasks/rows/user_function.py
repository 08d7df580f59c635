"""Call user code on the rows of a batch, and check what it returns."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import ContractError
from overnight.tasks.rows import user_values
from overnight.tasks.rows.blocks import IDENTITY
from overnight.tasks.rows.plain_values import owned, plain_column, snapshot
from overnight.tasks.rows.result import Outcome
from overnight.tasks.rows.returned_columns import returned_columns
from overnight.tasks.rows.tensors import Column, to_arrow, to_numpy

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

    `returned_columns.py` lists the forms that `function` may return. It may also return an `Outcome` that names the
    failed rows; then no other row runs again to find them. `given_as` makes the array of a column from its name and its
    values. `what` names the code in messages.

    The result lacks columns with unchanged values, so that these keep an Arrow type that NumPy and pandas may not
    support. The others are Arrow arrays, and lists of Python values for the names in `as_cells`. They are in memory of
    their own, because the code may use its memory again. Raise `ContractError` for another form, and `InvalidValues`
    for a value that no column can have.
    """
    given = {name: given_as(name, rows[name]) for name in rows.column_names}
    try:
        made = returned_columns(function(dict(given)), rows, stage, what)
    except KeyError as error:
        name_columns(error, rows.column_names)
        raise
    columns: dict[str, Column] = {}
    for name, values in made.columns.items():
        if name in given and user_values.changed(values, rows[name]) is None:
            continue
        new = plain_column(name, values)
        new = user_values.changed(new, rows[name]) if name in given else new
        if new is not None:
            columns[name] = _cells(new) if name in as_cells else owned(name, new)
    _refuse_other_ids(columns, rows, stage, what)
    return Outcome(columns, failed=made.failed)


def _cells(values: Column) -> list[Any]:
    """Return the values as Python values, and arrays, in memory of their own."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = to_numpy(values)
    return [snapshot(value) for value in values]


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
        others = f" and {len(columns) - COLUMNS_NAMED} more" if len(columns) > COLUMNS_NAMED else ""
        error.args = (_Unquoted(f"{missing!r}; the columns are {', '.join(columns[:COLUMNS_NAMED])}{others}"),)


def _refuse_other_ids(columns: Mapping[str, Column], rows: pa.Table, stage: str, what: str) -> None:
    """Raise `ContractError` if the code returned other ids or URIs: after a sort of a frame, or of its own."""
    for name in (known for known in IDENTITY if known in columns):
        before = rows[name].to_pylist() if name in rows.column_names else []
        after = to_arrow(columns[name]).to_pylist()
        if after != before and set(after) == set(before):
            raise ContractError(
                f"{what}: the rows come back in another order: the first is {after[0]!r}, expected {before[0]!r}. "
                "Return the rows in the order of the batch; other columns keep it.",
                stage,
            )
        raise ContractError(
            f"{what}: expected {name} unchanged, because Overnight names the rows, found {after[0]!r}. "
            "Return the values in a column of another name.",
            stage,
        )
