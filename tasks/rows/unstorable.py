"""The values that no column can have: each raises `Unstorable`, with what was found and the remedy."""

import datetime
import decimal
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import InvalidValues
from overnight.tasks.rows.arrow_types import kinds_in
from overnight.tasks.rows.tensors import Column, is_missing

PLAIN = frozenset({type(None), bool, int, float, str, bytes})  # types that Arrow takes as they are
TIME_UNITS = ("D", "s", "ms", "us", "ns")  # the units that Arrow has; D for dates alone
MOST_DIGITS = 76  # of Arrow's decimals


class Unstorable(Exception):
    """A value that no column can have, the remedy, and the value's place in the values of its column (`.a.b`)."""

    def __init__(self, problem: str, remedy: str, place: str = "") -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.place = problem, remedy, place

    def in_column(self, name: str) -> InvalidValues:
        """Return the error for users."""
        return InvalidValues(f"column {name + self.place!r}: found {self.problem}. {self.remedy}.")


def masked_entries() -> Unstorable:
    problem = "arrays with masked entries, and an array in a column has no nulls"
    return Unstorable(problem, "Use filled(nan), or lists with None")


def require_arrow_type(dtype: np.dtype) -> None:
    """Refuse numbers or times of NumPy that no type of Arrow holds. Other types pass."""
    if dtype.kind == "c":
        raise Unstorable(f"{dtype} numbers", "Use their real and imaginary parts in two columns")
    if dtype.kind == "f" and dtype.itemsize > 8 and not dtype.type.__module__.startswith("ml_dtypes"):
        raise Unstorable(f"{dtype} numbers, and a column has at most 64 bits for one", "Use astype(numpy.float64)")
    if dtype.kind == "V" and not dtype.names and dtype.type.__module__ == "numpy":
        raise Unstorable(f"raw memory ({dtype})", "Use bytes: [value.tobytes() for value in values]")
    if dtype.kind in "mM":
        kind, units = ("datetime64", TIME_UNITS) if dtype.kind == "M" else ("timedelta64", TIME_UNITS[1:])
        unit, count = np.datetime_data(dtype)
        if unit not in units or count != 1:
            problem = f"{dtype} values, and a column has the units {', '.join(units)}"
            raise Unstorable(problem, f"Use astype('{kind}[s]')")


def require_storable(kind: pa.DataType) -> None:
    """Refuse a type of Arrow that no file of tables has."""
    for inner in kinds_in(kind):
        if pa.types.is_union(inner) or pa.types.is_interval(inner):
            problem = f"values of the type {inner}, which tables in files lack"
            raise Unstorable(problem, "Use another type, or JSON text")


def require_one_kind(cells: Sequence[Any], place: str) -> None:
    """Refuse values that would be converted into each other, and lose a zone, a time or a shape.

    Values at the same place in dicts and lists need one kind, too.
    """
    types = set(map(type, cells))
    if types <= PLAIN and not {str, bytes} <= types:
        return
    # NaT of pandas is a datetime
    kinds = {_kind(cell) for cell in cells if not is_missing(cell)} - {""}
    if len(kinds) > 1:
        raise Unstorable(" and ".join(sorted(kinds)), "Use one type, or None for no value", place)
    values_by_key: dict[str, list[Any]] = {}
    entries: list[Any] = []
    for cell in cells:
        if isinstance(cell, dict):
            for key, value in cell.items():
                values_by_key.setdefault(key, []).append(value)
        elif isinstance(cell, list) or (isinstance(cell, np.ndarray) and cell.dtype.hasobject):
            entries.extend(cell)
    for key, values in values_by_key.items():
        require_one_kind(values, f"{place}.{key}")
    if entries:
        require_one_kind(entries, place)


def _kind(cell: Any) -> str:
    if isinstance(cell, datetime.datetime):
        return "times with a zone" if cell.tzinfo else "times without a zone"
    if isinstance(cell, int | float | np.number):
        return "numbers" if cell == cell else ""  # noqa: PLR0124 - pandas has NaN for a missing value of any kind
    if isinstance(cell, np.ndarray):
        return "arrays" if cell.ndim else "numbers"
    kinds = {datetime.date: "dates", str: "texts", bytes: "bytes"}
    return next((plural for kind, plural in kinds.items() if isinstance(cell, kind)), "")


def refuse_beyond(values: Column) -> None:
    """Refuse the first value that is too large or has no form in Arrow, also inside others."""
    queue = deque(values)
    while queue:
        value = queue.popleft()
        if isinstance(value, Mapping):
            queue.extend(value.values())
        elif isinstance(value, list) or (isinstance(value, np.ndarray) and value.dtype == object):
            queue.extend(value)
        elif isinstance(value, int | np.integer):
            _refuse_large_number(value)
        elif isinstance(value, decimal.Decimal):
            _refuse_decimal(value)
        elif isinstance(value, datetime.timedelta) and abs(value // datetime.timedelta(microseconds=1)) >= 2**63:
            raise Unstorable(f"a duration of {value.days} days, beyond 64 bits", "Use seconds as numbers")
        elif isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            problem = f"a text with half of a character, {value!r:.80}, which UTF-8 lacks"
            raise Unstorable(problem, "Use text.encode('utf-8', 'replace').decode()")


def _refuse_large_number(value: int | np.integer) -> None:
    if 2**63 <= value < 2**64:
        problem = f"whole numbers above 2**63 - 1, such as {value}, in a list"
        raise Unstorable(problem, "Use numpy.array(values, numpy.uint64), text (str) or Decimal")
    if not -(2**63) <= value < 2**63:
        raise Unstorable(f"whole numbers beyond 64 bits, such as {value}", "Use text (str) or Decimal")


def _refuse_decimal(value: decimal.Decimal) -> None:
    if not value.is_finite():
        raise Unstorable(f"Decimal({str(value)!r}), which decimals in a column lack", "Use None, or floats")
    _, digits, exponent = value.as_tuple()
    count = max(len(digits), -int(exponent)) + max(int(exponent), 0)
    if count > MOST_DIGITS:
        raise Unstorable(f"a Decimal of {count} digits, and a column has at most {MOST_DIGITS}", "Use text (str)")
