"""Copies of what Python code returns or yields: it may use the memory of its results again, for its next batch."""

from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.rows.plain_values import arrow_column, fields_of, is_image
from overnight.tasks.rows.tensors import Column, is_pandas_value


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
        return [snapshot(inner) for inner in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _copied_objects(value)
    if getattr(value, "n_frames", 1) > 1:  # a copy would have one of them
        return value
    is_mutable = isinstance(value, bytearray | deque | AbstractSet) or hasattr(value, "__array__")
    return _copy_of(value) if is_mutable or is_image(value) else value


def _copy_of(value: Any) -> Any:
    copy: Callable[[], Any] | None = getattr(value, "clone", None) or getattr(value, "copy", None)
    return copy() if copy else value


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
        return pa.table([_copied(column) for column in table.columns], names=table.column_names)
    if isinstance(values, pa.ChunkedArray):
        return _copied(values.combine_chunks())
    return pa.concat_arrays([values, values[:0]])  # of one array, Arrow makes no copy
