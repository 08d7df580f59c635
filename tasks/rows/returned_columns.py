"""Convert what the user's code returns for a batch to columns with one value per row.

Code returns the columns in a dict, a table of pandas, Polars or Arrow, or an object with fields. Or it returns a list
of rows, where each row is a dict or an object with fields. A generator yields rows. Or, as Ray Data documents it, it
yields pieces of the batch: dicts of arrays or lists, for the next rows in order. Async code may return any of these.
The awaitables in a list run concurrently; if one raises, only its row fails.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence, Set
from typing import Any

import pyarrow as pa

from overnight.tasks.errors import ContractError, OvernightError
from overnight.tasks.rows import event_loop
from overnight.tasks.rows.plain_values import PLAIN, fields_of, plain_column, snapshot
from overnight.tasks.rows.result import Outcome, concatenated
from overnight.tasks.rows.tensors import Column, is_pandas_value, to_arrow

FORM = "Return {column: array with one value per row}"


def returned_columns(returned: Any, rows: pa.Table, stage: str, what: str) -> Outcome:
    """Return the columns that code `returned` for the batch `rows`, and the rows that failed, as an outcome.

    The module's docstring lists the accepted forms. Raise `ContractError`, with this stage, for another form, another
    number of values, or a pandas index in another order. `what` names the code in messages.
    """
    count = len(rows)
    failed: dict[int, Exception] = {}
    try:
        if inspect.isawaitable(returned):
            returned = event_loop.result_of(returned)
        if isinstance(returned, Outcome):
            failed, returned = dict(returned.failed), returned.columns
        columns = _columns(returned, count, stage, failed)
        for name, values in columns.items():
            _require_order(name, values, rows)
        return Outcome({name: _column(name, values, count, failed) for name, values in columns.items()}, failed=failed)
    except _WrongForm as error:
        raise ContractError(f"{what}: {error}", stage) from None


class _WrongForm(Exception):
    """The code returned another form than a batch needs."""


def _columns(returned: Any, count: int, stage: str, failed: dict[int, Exception]) -> Mapping[Any, Column]:
    is_yielded = isinstance(returned, AsyncIterator | Iterator)
    if isinstance(returned, AsyncIterator):
        returned = event_loop.result_of(_collected(returned))
    elif is_yielded:
        returned = [snapshot(piece) for piece in returned]
    if (columns := _named(returned)) is not None:
        return columns
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        raise _WrongForm(f"expected a dict of arrays, found {type(returned).__name__}. {FORM}.")
    pieces = [_named(one) for one in returned] if is_yielded else []
    if pieces and all(piece and all(map(_is_column, piece.values())) for piece in pieces):
        return _joined([piece or {} for piece in pieces], count, stage)
    return _of_rows(_awaited(returned, failed), count, "yields" if is_yielded else "entries", failed)


def _require_order(name: Any, values: Any, rows: pa.Table) -> None:
    """Refuse a column of pandas whose index has the numbers of the rows, or the values of its column, in another order.

    pandas keeps the index of a row in a sort, so each value would go to another row.
    """
    if not (is_pandas_value(values) and hasattr(values, "index")):
        return
    found, key = values.index.tolist(), values.index.name
    expected = rows[key].to_pylist() if key in rows.column_names else list(range(len(rows)))
    if found != expected and len(found) == len(expected) and set(found) == set(expected):
        raise _WrongForm(
            f"column {name!r} comes back in another order: its pandas index begins with {found[0]!r}, expected "
            f"{expected[0]!r}. Keep the order of the batch, for example with sort_index(). If the order is right, call "
            "reset_index()."
        )


async def _collected(returned: AsyncIterator[Any]) -> list[Any]:
    return [snapshot(piece) async for piece in returned]


def _named(returned: Any) -> Mapping[Any, Column] | None:
    """Return the columns, or a row's values, by name; None for a value without names."""
    if (fields := fields_of(returned)) is not None:
        return fields
    is_of_pandas = is_pandas_value(returned) and hasattr(returned, "columns")
    if not is_of_pandas and not hasattr(returned, "__arrow_c_stream__"):
        return None
    frame = returned if is_of_pandas else pa.table(returned)
    names = list(frame.columns) if is_of_pandas else frame.column_names
    if len(set(names)) < len(names):
        raise _WrongForm(f"expected columns of different names, found {', '.join(map(str, names))}. Rename one.")
    return {name: frame[name] for name in names}


def _is_column(values: Any) -> bool:
    if isinstance(values, list | pa.Array | pa.ChunkedArray):
        return True
    return hasattr(values, "__array__") and len(getattr(values, "shape", (0,))) > 0


def _joined(pieces: list[Mapping[Any, Column]], count: int, stage: str) -> dict[str, Column]:
    tables = []
    for piece in pieces:
        arrays = {str(name): to_arrow(plain_column(str(name), values)) for name, values in piece.items()}
        if len({len(array) for array in arrays.values()}) > 1:
            lengths = ", ".join(f"{name}: {len(array)}" for name, array in arrays.items())
            raise _WrongForm(f"a yielded dict has columns of different lengths ({lengths}). {FORM}.")
        tables.append(pa.table(arrays))
    made = sum(len(table) for table in tables)
    if made != count:
        raise _WrongForm(
            f"its {len(tables)} yields have {made} values for a batch of {count} rows. Yield dicts of arrays with "
            "exactly one value per row; if each yield is one row, return a list of dicts; use filter_rows to drop rows."
        )
    table = concatenated(tables, stage)
    return {name: table[name] for name in table.column_names}


def _awaited(values: Sequence[Any], failed: dict[int, Exception]) -> list[Any]:
    """Return the values with the results of awaitables, and None for one that raised; its error goes to `failed`."""
    held = list(values)
    places = [place for place, value in enumerate(held) if inspect.isawaitable(value)]
    answers = event_loop.results_of([_taken(held[place]) for place in places]) if places else []
    for place, found in zip(places, answers, strict=True):
        if isinstance(found, OvernightError) or (isinstance(found, BaseException) and not isinstance(found, Exception)):
            raise found
        if isinstance(found, Exception):
            failed.setdefault(place, found)
        held[place] = None if isinstance(found, Exception) else found
    return held


async def _taken(answer: Awaitable[Any]) -> Any:
    return snapshot(await answer)


def _of_rows(rows: list[Any], count: int, unit: str, failed: Mapping[int, Exception]) -> dict[Any, Column]:
    named = [{} if place in failed else _named(row) for place, row in enumerate(rows)]
    for place, row in enumerate(named):
        if row is None:
            kind = type(rows[place]).__name__
            raise _WrongForm(f"expected a dict of arrays, found list, and its value {place} is of type {kind}. {FORM}.")
    if len(rows) != count:
        raise _WrongForm(
            f"expected one of its {unit} per row, found {len(rows)} {unit} for a batch of {count} rows. "
            "Make exactly one for each row; use filter_rows to drop rows."
        )
    names = dict.fromkeys(name for row in named for name in row or ())
    return {name: [(row or {}).get(name) for row in named] for name in names}


def _column(name: Any, values: Any, count: int, failed: dict[int, Exception]) -> Column:
    if isinstance(values, Iterator):
        values = [snapshot(value) for value in values]
    if getattr(values, "is_nested", False):  # a tensor of PyTorch for rows of different shapes
        values = list(values.unbind())
    if isinstance(values, Set):
        raise _WrongForm(f"column {name!r} is a {type(values).__name__}, which has no order. {FORM}.")
    is_single = isinstance(values, str | bytes) or fields_of(values) is not None or getattr(values, "shape", None) == ()
    if is_single or not hasattr(values, "__len__"):
        raise _WrongForm(f"column {name!r} has a single {type(values).__name__} for a batch of {count} rows. {FORM}.")
    if len(values) != count:
        raise _WrongForm(
            f"column {name!r} has {len(values)} values for a batch of {count} rows. "
            "Return exactly one value per row; use filter_rows to drop rows."
        )
    if not isinstance(name, str) or not name or name.startswith("__"):
        raise _WrongForm(
            f"{name!r} is not a usable column name. Return a name that is not empty and does not begin with __."
        )
    if isinstance(values, list | tuple) and not set(map(type, values)) <= PLAIN:
        return _awaited(values, failed)
    return values
