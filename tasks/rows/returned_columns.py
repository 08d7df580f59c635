"""Convert what the user's code returns for a batch to columns with one value per row.

Code returns the columns in a dict, a table of pandas, Polars or Arrow, or an object with fields. Or it returns a list
of rows, each a dict or an object with fields. A generator yields rows or, as in Ray Data, pieces of the batch: dicts of
arrays or lists, for the next rows in order. Async code may return any of these. The awaitables in a list run
concurrently; if one raises, only its row fails.
"""

import asyncio
import inspect
import itertools
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

import pyarrow as pa

from overnight.tasks.errors import ContractError, OvernightError
from overnight.tasks.rows.arrow_types import columns_of
from overnight.tasks.rows.plain_values import fields_of, plain_column
from overnight.tasks.rows.result import Outcome, concatenated
from overnight.tasks.rows.tensors import Column, is_pandas_value, to_arrow
from overnight.tasks.rows.unstorable import PLAIN
from overnight.tasks.rows.user_values import snapshot

FORM = "Return {column: array with one value per row}"


class _WrongForm(Exception):
    """The code returned another form than a batch needs."""


def returned_columns(returned: Any, rows: pa.Table, stage: str, what: str) -> Outcome:
    """Return the columns that code `returned` for the batch `rows`, and the rows that failed, as an outcome.

    Raise `ContractError`, which names `what`, for an unknown form, another number of values, or another pandas index.
    """
    errors: dict[int, Exception] = {}
    value = returned
    try:
        if inspect.isawaitable(value):
            value = _result_of(_finished(value))
        if isinstance(value, Outcome):
            errors, value = dict(value.failed), value.columns
        columns = _columns(value, len(rows), stage, errors)
        for name, values in columns.items():
            _require_order(name, values, rows)
        columns = {name: _column(name, values, len(rows), errors) for name, values in columns.items()}
        return Outcome(columns, failed=errors)
    except _WrongForm as error:
        raise ContractError(f"{what}: {error}", stage) from None


def _columns(value: Any, count: int, stage: str, errors: dict[int, Exception]) -> Mapping[Any, Column]:
    is_generator = isinstance(value, AsyncIterator | Iterator)
    if isinstance(value, AsyncIterator):
        value = _result_of(_collected(value))
    elif is_generator:
        value = list(map(snapshot, value))
    columns = _named(value)
    if columns is not None:
        return columns
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _WrongForm(f"expected a dict of arrays, found {type(value).__name__}. {FORM}.")
    if is_generator:
        pieces = [piece for piece in map(_named, value) if piece and all(map(_is_column, piece.values()))]
        if pieces and len(pieces) == len(value):
            return _joined(pieces, count, stage)
    return _of_rows(_awaited(value, errors), count, "yields" if is_generator else "entries", errors)


def _require_order(name: Any, values: Any, rows: pa.Table) -> None:
    """Refuse a column of pandas whose index has the numbers of the rows, or the values of its column, in another order.

    pandas keeps the index of a row in a sort, so each value would go to another row.
    """
    if not (is_pandas_value(values) and hasattr(values, "index")):
        return
    index, key = values.index.tolist(), values.index.name
    order = list(range(len(rows)))
    if key in rows.column_names:
        order = rows[key].to_pylist()
    if index != order and len(index) == len(order) and set(index) == set(order):
        raise _WrongForm(
            f"column {name!r} comes back in another order: its pandas index begins with {index[0]!r}, expected "
            f"{order[0]!r}. Keep the order of the batch, for example with sort_index(). If the order is right, call "
            "reset_index()."
        )


def _named(value: Any) -> Mapping[Any, Column] | None:
    """Return the columns, or a row's values, by name; None for a value without names."""
    fields = fields_of(value)
    if fields is not None:
        return fields
    if is_pandas_value(value) and hasattr(value, "columns"):
        names = list(value.columns)
    elif hasattr(value, "__arrow_c_stream__"):
        value = pa.table(value)
        names = value.column_names
    else:
        return None
    if len(set(names)) < len(names):
        raise _WrongForm(f"expected columns of different names, found {', '.join(map(str, names))}. Rename one.")
    return {name: value[name] for name in names}


def _is_column(values: Any) -> bool:
    if isinstance(values, list | pa.Array | pa.ChunkedArray):
        return True
    return hasattr(values, "__array__") and len(getattr(values, "shape", (0,))) > 0


def _joined(pieces: list[Mapping[Any, Column]], count: int, stage: str) -> dict[str, Column]:
    tables = []
    for piece in pieces:
        arrays = {}
        for name, values in piece.items():
            arrays[str(name)] = to_arrow(plain_column(str(name), values))
        if len(set(map(len, arrays.values()))) > 1:
            lengths = ", ".join(f"{name}: {len(array)}" for name, array in arrays.items())
            raise _WrongForm(f"a yielded dict has columns of different lengths ({lengths}). {FORM}.")
        tables.append(pa.table(arrays))
    total = sum(map(len, tables))
    if total != count:
        raise _WrongForm(
            f"its {len(tables)} yields have {total} values for a batch of {count} rows. Yield dicts of arrays with "
            "exactly one value per row; if each yield is one row, return a list of dicts; use filter_rows to drop rows."
        )
    return dict(columns_of(concatenated(tables, stage)))


def _of_rows(rows: list[Any], count: int, unit: str, errors: Mapping[int, Exception]) -> dict[Any, Column]:
    named_rows = []
    for number, row in enumerate(rows):
        values = {} if number in errors else _named(row)
        if values is None:
            kind = type(row).__name__
            raise _WrongForm(
                f"expected a dict of arrays, found list, and its value {number} is of type {kind}. {FORM}."
            )
        named_rows.append(values)
    if len(rows) != count:
        raise _WrongForm(
            f"expected one of its {unit} per row, found {len(rows)} {unit} for a batch of {count} rows. "
            "Make exactly one for each row; use filter_rows to drop rows."
        )
    columns: dict[Any, Column] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(named_rows)):
        columns[name] = [values.get(name) for values in named_rows]
    return columns


def _column(name: Any, values: Any, count: int, errors: dict[int, Exception]) -> Column:
    if isinstance(values, Iterator):
        values = list(map(snapshot, values))
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
        return _awaited(values, errors)
    return values


def _awaited(values: Sequence[Any], errors: dict[int, Exception]) -> list[Any]:
    """Return the values with the results of awaitables, and None for one that raised; add its error to `errors`."""
    results = list(values)
    works = {row: value for row, value in enumerate(results) if inspect.isawaitable(value)}
    if not works:
        return results
    answers = _result_of(_all_finished(list(works.values())))
    for row, answer in zip(works, answers, strict=True):
        if isinstance(answer, BaseException):
            if isinstance(answer, OvernightError) or not isinstance(answer, Exception):
                raise answer
            errors.setdefault(row, answer)
        results[row] = None if isinstance(answer, Exception) else answer
    return results


async def _finished(work: Awaitable[Any]) -> Any:
    return await work


async def _all_finished(works: Sequence[Awaitable[Any]]) -> list[Any]:
    async def copied(work: Awaitable[Any]) -> Any:
        return snapshot(await work)

    return await asyncio.gather(*map(copied, works), return_exceptions=True)


async def _collected(pieces: AsyncIterator[Any]) -> list[Any]:
    return [snapshot(piece) async for piece in pieces]


def _result_of(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, _loop(os.getpid())).result()


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return the loop of the process with this id, which stays open: a later call can use a client of an earlier one.

    Tasks that a call does not await continue in the loop. A forked process has no thread of its parent.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="async code").start()
    return loop
