"""Calls of user code on the rows of a batch, with a check of the return value."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import ContractError
from overnight.tasks.rows import user_values
from overnight.tasks.rows.result import Outcome
from overnight.tasks.rows.tensors import Column


def call(function: Callable[[dict[str, np.ndarray]], Any], rows: pa.Table, stage: str, what: str) -> dict[str, Column]:
    """Return the columns of `outcome_of` for code that fails for all rows of a call or for none."""
    return dict(outcome_of(function, rows, stage, what).columns)


def outcome_of(
    function: Callable[[dict[str, np.ndarray]], Any],
    rows: pa.Table,
    stage: str,
    what: str,
    given_as: Callable[[str, pa.ChunkedArray], np.ndarray] = lambda _, column: user_values.given(column),
) -> Outcome:
    """Call user code on writable arrays and return its checked result: a dict with one value per row in every column.

    It may also return an `Outcome` if it knows which rows failed: then no other row runs again to find them.

    Columns with unchanged values are left out: they keep their Arrow type, which NumPy and pandas may not support.
    `given_as` converts a column for the code. Raise `ContractError` if the return value is not as Ray Data documents.
    """
    given = {name: given_as(name, rows[name]) for name in rows.column_names}
    returned = function(dict(given))
    failed = returned.failed if isinstance(returned, Outcome) else {}
    returned = returned.columns if isinstance(returned, Outcome) else returned
    if not isinstance(returned, Mapping):
        raise ContractError(
            f"{what}: expected a dict of arrays, found {type(returned).__name__}. "
            "Return {column: array with one value per row}.",
            stage,
        )
    columns: dict[str, Column] = {}
    for name, values in returned.items():
        count = len(values) if hasattr(values, "__len__") else None
        if count != len(rows):
            found = f"{count} values" if count is not None else f"a single {type(values).__name__}"
            raise ContractError(
                f"{what}: column {name!r} has {found} for a batch of {len(rows)} rows. "
                "Return exactly one value per row; use filter_rows to drop rows.",
                stage,
            )
        if not isinstance(name, str) or name.startswith("__"):
            raise ContractError(f"{what}: {name!r} is not a usable column name (a string without leading __).", stage)
        new = user_values.changed(values, rows[name]) if name in given else values
        if new is not None:
            columns[name] = new
    return Outcome(columns, failed=failed)
