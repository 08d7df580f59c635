"""Convert a column's values for the user's Python code, and compare and copy the values that the code returns.

NumPy has no null for integers and no time zone. So integers with nulls, and times with a zone, become exact Python
objects, None for null. Values that the code returns are copied, because it may use their memory for its next batch.
"""

from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.rows.arrow_types import is_bytes, is_list, is_text, value_type
from overnight.tasks.rows.plain_values import arrow_column, fields_of, is_image
from overnight.tasks.rows.tensors import TENSOR, Column, is_missing, is_pandas_value, same, to_arrow, to_numpy

FAMILIES = (
    types.is_integer,
    types.is_floating,
    types.is_boolean,
    types.is_decimal,
    types.is_duration,
    types.is_time,
    lambda kind: types.is_timestamp(kind) or types.is_date(kind),
    is_text,
    is_bytes,
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
    """Return the `values` that code returned for a column, in any container, or None if they equal its values `before`.

    Values without a NumPy or Arrow type, such as those of a list, get the type of `before` again if it can hold them.
    """
    kind = value_type(before.type)
    if _family(kind) is None:
        return None if _same_cells(values, to_numpy(before)) else values
    try:
        array = to_arrow(values)
    except Exception:  # the caller converts it as well, and finds the cause
        return values
    new_array = _converted(array, kind)
    if new_array is None:
        return values
    if _without_nan(new_array).equals(_without_nan(before.cast(kind).combine_chunks())):
        return None
    has_own_type = (isinstance(values, np.ndarray) and values.dtype != object) or array.type == kind
    return values if has_own_type else new_array


def _family(kind: pa.DataType) -> int | None:
    """Return the position in `FAMILIES` of the family of a type; None if it is in none of them."""
    for position, is_family in enumerate(FAMILIES):
        if is_family(kind):
            return position
    return None


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return the array in the type `kind`; None if its type is of another family, or cannot hold every value."""
    if types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if _family(array.type) != _family(kind) or getattr(array.type, "tz", None) != getattr(kind, "tz", None):
        return None
    try:
        new_array = array.cast(kind)
        is_same = _without_nan(new_array.cast(array.type)).equals(_without_nan(array))
    except pa.ArrowException:
        return None
    if is_same:
        return new_array
    return None


def _without_nan(array: pa.Array) -> pa.Array:
    """Replace NaN by null: NumPy has one value for both."""
    if not types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)


def _same_cells(values: Any, before: np.ndarray) -> bool:
    if hasattr(values, "__array__"):
        values = np.asarray(values)
    if type(values) is type(before) and same(values, before):
        return True
    if not isinstance(values, np.ndarray | list | tuple):
        return False
    pairs = zip(values, before, strict=True)
    return all(same(value, cell) or (cell is None and is_missing(value)) for value, cell in pairs)


def as_declared(values: Column, kind: pa.DataType) -> Column:
    """Return a batch's values with the type `kind` of a trial if their own type only lacks fields or inner types of it.

    A list may be empty in this batch, a field missing, or all values null. Numbers of another type keep that type.
    """
    if (isinstance(values, np.ndarray) and values.dtype != object) or kind == TENSOR:
        return values
    try:
        array = to_arrow(values)
        if array.type != kind and _lacks(array.type, kind):
            array = array.cast(kind)
        return array
    except Exception:  # the caller converts it as well, and finds the cause
        return values


def _lacks(own: pa.DataType, kind: pa.DataType) -> bool:
    """Return True if `kind` is `own` with types in place of nulls, and with further fields."""
    if types.is_null(own) or own == kind:
        return True
    if is_list(own) and types.is_list(kind):
        return _lacks(own.value_type, kind.value_type)
    if not (types.is_struct(own) and types.is_struct(kind)):
        return False
    indices = [kind.get_field_index(field.name) for field in own]
    if -1 in indices or indices != sorted(indices):
        return False
    return all(_lacks(field.type, kind.field(index).type) for field, index in zip(own, indices, strict=True))


def owned(name: str, values: Column) -> pa.Array:
    """Return the values of column `name`, as `plain_column` returns them, as an Arrow array in memory of its own."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return arrow_column(name, values.copy())
    array = arrow_column(name, values)
    return array if isinstance(values, list) else _copied(array)


def snapshot(value: Any) -> Any:
    """Return a value that code yields or returns for a row, in memory of its own, down to the values inside it."""
    if isinstance(value, pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch):
        return _copied(value)
    if isinstance(value, memoryview):
        return value.tobytes()
    if is_pandas_value(value):
        return _copied_pandas(value)
    fields = fields_of(value)
    if fields is not None:
        return {name: snapshot(inner) for name, inner in fields.items()}
    if isinstance(value, list | tuple):
        return list(map(snapshot, value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _copied_objects(value)
    if getattr(value, "n_frames", 1) > 1:  # a copy would have one of them
        return value
    is_mutable = isinstance(value, bytearray | deque | AbstractSet) or hasattr(value, "__array__")
    return _copy_of(value) if is_mutable or is_image(value) else value


def _copy_of(value: Any) -> Any:
    copy: Callable[[], Any] | None = getattr(value, "clone", None) or getattr(value, "copy", None)
    if copy:
        return copy()
    return value


def _copied_objects(values: np.ndarray) -> np.ndarray:
    """Return a copy of an array of objects, with a copy of each object."""
    copy = values.copy()
    objects = np.ma.getdata(copy)
    if objects.ndim:
        for index in np.ndindex(objects.shape):
            objects[index] = snapshot(objects[index])
    return copy


def _copied_pandas(value: Any) -> Any:
    """Return a copy of a value of pandas, with a copy of each object in it."""
    if hasattr(value, "isetitem"):  # a DataFrame
        frame = value.copy()
        for number, dtype in enumerate(value.dtypes):
            if str(dtype) == "object":
                frame.isetitem(number, snapshot(value.iloc[:, number]))
        return frame
    if str(getattr(value, "dtype", "")) == "object" and hasattr(value, "index"):
        return type(value)(_copied_objects(value.to_numpy()), index=value.index, name=value.name, dtype=object)
    return _copy_of(value) if hasattr(value, "__array__") else value


def _copied(values: Any) -> Any:
    """Return arrays or tables of Arrow in memory of their own."""
    if isinstance(values, pa.Table | pa.RecordBatch):
        table = pa.table(values)
        return pa.table(list(map(_copied, table.columns)), names=table.column_names)
    if isinstance(values, pa.ChunkedArray):
        return _copied(values.combine_chunks())
    return pa.concat_arrays([values, values[:0]])  # of one array, Arrow makes no copy
