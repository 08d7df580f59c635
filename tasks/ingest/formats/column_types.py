"""Columns of a type that the job sets or the first rows show: values that do not fit fail alone."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

# The errors of a value, such as `ArrowInvalid`. A lack of memory is not one.
MISFIT = (pa.ArrowNotImplementedError, pa.ArrowCapacityError, OverflowError, TypeError, ValueError)
Errors = dict[int, Exception]  # of bad rows, by their position
_NO_DIGITS = re.compile(r"[eE].*|[^0-9]")
_MOST_DIGITS = 767  # of a float64 that is written in full


def known_types(types: dict[str, str]) -> dict[str, str]:
    """Return `types`, names of Arrow types by column. Raise `ValueError` for one to which no text can be converted."""
    for column, name in types.items():
        try:
            pa.array([], pa.string()).cast(pa.type_for_alias(name))
        except (ValueError, pa.ArrowNotImplementedError):
            raise ValueError(f"{column}: expected an Arrow type such as int64 or string, found {name}") from None
    return types


def typed_schema(kinds: Mapping[str, pa.DataType], types: Mapping[str, str]) -> pa.Schema:
    """Return columns of the `kinds` that the first rows show, or of the `types` that the job sets."""
    return pa.schema([(name, types.get(name) or kind) for name, kind in kinds.items()])


def fitting(values: Any, convert: Callable[[Any], pa.Array], kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return `convert(values)`, and the positions of values that do not fit, which are null in the column."""
    try:
        return convert(values), []
    except MISFIT:
        pass
    cells, misfits = [], []
    for position in range(len(values)):
        try:
            cells.append(convert(values[position : position + 1]))
        except MISFIT:
            cells.append(pa.nulls(1, kind))
            misfits.append(position)
    return pa.concat_arrays(cells), misfits


def is_exact(text: str, value: float) -> bool:
    """Return True if the number `text` and its float `value`, written with as many digits, have the same digits."""
    # 0.10000000000000001 is exact, and 9007199254740993 is not: the nearest float64 ends in 2.
    digits = _NO_DIGITS.sub("", text).strip("0")
    written = f"{value:.{min(max(len(digits), 1), _MOST_DIGITS) - 1}e}".partition("e")[0]
    return digits == _NO_DIGITS.sub("", written).strip("0")
