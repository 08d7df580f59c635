"""Convert a column's values for the user's Python code, and check whether the code returned them unchanged.

NumPy has no null for integers and no time zone. So integers with nulls, and times with a zone, become exact Python
objects, None for null. `overnight.tasks.rows.tensors.to_numpy` converts all other values.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.rows.tensors import Column, is_missing, same, to_arrow, to_numpy

FAMILIES = (
    types.is_integer,
    types.is_floating,
    types.is_boolean,
    types.is_decimal,
    types.is_duration,
    types.is_time,
    lambda kind: types.is_timestamp(kind) or types.is_date(kind),
    lambda kind: types.is_string(kind) or types.is_large_string(kind),
    lambda kind: types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind),
)  # types whose values Python code gets as the same kind of value


def given(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column as a writable array; values that NumPy would round, or whose zone it would lose, are objects."""
    kind = column.type
    if (types.is_integer(kind) and column.null_count) or (types.is_timestamp(kind) and kind.tz is not None):
        try:
            values = column.to_pylist()
        except (OverflowError, ValueError):  # a time beyond the year 9999
            return to_numpy(column, writable=True)
        objects = np.empty(len(values), object)
        objects[:] = values
        return objects
    return to_numpy(column, writable=True)


def changed(values: Column, before: pa.ChunkedArray) -> Column | None:
    """Return the `values` that code returned for a column, or None if they equal its values `before`.

    Whether they are in a list, an array or another container does not matter. Values without a NumPy or Arrow type,
    such as those of a list, get the type of `before` again if it can hold them.
    """
    kind = before.type.value_type if types.is_dictionary(before.type) else before.type
    if not any(is_family(kind) for is_family in FAMILIES):
        return None if _same_cells(values, to_numpy(before)) else values
    try:
        found = to_arrow(values)
    except Exception:  # the caller converts it as well, and finds the cause
        return values
    held = _held(found, kind)
    if held is None:
        return values
    if _without_nan(held).equals(_without_nan(before.cast(kind).combine_chunks())):
        return None
    is_typed = isinstance(values, np.ndarray) and values.dtype != object
    return values if is_typed or found.type == kind else held


def _held(found: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return `found` in the type `kind`; None if the type is of another family, or cannot hold every value."""
    if types.is_null(found.type):
        return pa.nulls(len(found), kind)
    is_alike = any(is_family(found.type) and is_family(kind) for is_family in FAMILIES)
    if not is_alike or getattr(found.type, "tz", None) != getattr(kind, "tz", None):
        return None
    try:
        held = found.cast(kind)
        return held if _without_nan(held.cast(found.type)).equals(_without_nan(found)) else None
    except pa.ArrowException:
        return None


def _without_nan(array: pa.Array) -> pa.Array:
    """Replace NaN by null: NumPy has one value for both."""
    if not types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)


def _same_cells(values: Any, before: np.ndarray) -> bool:
    values = np.asarray(values) if hasattr(values, "__array__") else values
    if type(values) is type(before) and same(values, before):
        return True
    if not isinstance(values, np.ndarray | list | tuple):
        return False
    pairs = zip(values, before, strict=True)
    return all(same(value, cell) or (cell is None and is_missing(value)) for value, cell in pairs)
