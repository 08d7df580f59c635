"""Convert arrays to Arrow columns and back.

In blocks, arrays (images, embeddings) have the type `TENSOR`, a plain Arrow struct. So rows of different shapes and
null rows fit into one column, and a stacked array needs no copy. This file does not use rows, files, models or Ray.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TENSOR = pa.struct([("dtype", pa.string()), ("shape", pa.list_(pa.int32())), ("data", pa.large_binary())])
FIRST_TEXTS, REPEATED_TEXTS = 1024, 64  # if the first rows have at most these different texts, the column repeats them
Column = Any  # pa.Array, pa.ChunkedArray, np.ndarray or a sequence, one value per row


def to_numpy(column: pa.ChunkedArray, writable: bool = False) -> np.ndarray:
    """Return a column as one array.

    Tensors of one shape are stacked; tensors of several shapes become an object array of arrays. Fixed-size lists of
    numbers become a matrix, other lists an object array of arrays. All other types are converted by `pyarrow`. With
    `writable`, the result and the arrays in it are copied if they are read-only.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # zero chunks
        array = pa.array([], array.type)
    if array.type == TENSOR:
        result = _tensors_to_numpy(array)
    elif pa.types.is_fixed_size_list(array.type) and not array.null_count and not array.flatten().null_count:
        flat = array.flatten().to_numpy(zero_copy_only=False)
        result = flat.reshape(len(array), array.type.list_size)
    elif pa.types.is_string(array.type):
        return _texts_to_numpy(array)
    else:
        result = array.to_numpy(zero_copy_only=False)
    if not writable:
        return result
    result = result if result.flags.writeable else result.copy()
    for place, cell in enumerate(result if result.dtype == object else ()):
        if isinstance(cell, np.ndarray) and not cell.flags.writeable:
            result[place] = cell.copy()
    return result


def to_arrow(values: Column) -> pa.Array:
    """Return a column's values, one per row, as an Arrow array.

    Values that are arrays of one or more dimensions become `TENSOR`. Raise `pa.ArrowException` for values without an
    Arrow type.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if not isinstance(values, np.ndarray) and hasattr(values, "__array__"):
        dtype = getattr(values, "dtype", None)
        if not isinstance(dtype, np.dtype) and getattr(dtype, "kind", "") in list("biufM"):
            return pa.Array.from_pandas(values)  # NumPy has no nulls and no zones for these types of pandas
        values = np.asarray(values)  # torch, jax and pandas values on the host
    if not isinstance(values, np.ndarray):
        values = _without_stray_nan([_plain(value) for value in values])
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        if any(array.dtype == object for array in arrays):  # its bytes would be addresses
            return pa.array([value.tolist() if isinstance(value, np.ndarray) else value for value in values])
        if any(is_pandas_value(value) for value in values):
            return _pandas_times(values)
        time = next((value for value in values if isinstance(value, np.datetime64 | np.timedelta64)), None)
        if time is not None:
            return pa.array(np.array([type(time)("NaT") if value is None else value for value in values]))
        return _tensors_to_arrow(values) if arrays else pa.array(values)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.ndim > 1 and values.dtype != object:
        return _stacked_to_arrow(values)
    if values.dtype == object:
        return to_arrow(list(values))
    if values.dtype.kind in "US":
        return pa.array(values.tolist())
    return pa.array(_in_arrow_units(values) if values.dtype.kind in "mM" else values)


def _in_arrow_units(times: np.ndarray) -> np.ndarray:
    """Return times or durations in a unit that Arrow has: years to weeks as days, hours and minutes as seconds.

    Arrow drops the factor of units such as `10s`. Raise `pa.ArrowInvalid` for a time that 64 bits cannot represent.
    """
    unit, factor = np.datetime_data(times.dtype)
    coarser = {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}
    if times.dtype.kind == "m":
        coarser |= {"W": "s", "D": "s"}
    if unit not in coarser and factor == 1:
        return times
    try:
        values = times.astype(f"{times.dtype.kind}8[{coarser.get(unit, unit)}]", casting="safe")
    except TypeError as error:  # a month or a year has no fixed length
        raise pa.ArrowInvalid(str(error)) from None
    if not np.array_equal(values.astype(times.dtype)[~np.isnat(times)], times[~np.isnat(times)]):
        raise pa.ArrowInvalid(f"a time of {times.dtype} that {values.dtype} cannot represent")
    return values


def as_lists(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column of arrays (`TENSOR`) as lists of their entries, and a column of another type unchanged.

    The entries of an array of two or more dimensions are arrays.
    """
    if column.type != TENSOR:
        return column
    cells = to_numpy(column)
    present = [cell for cell in cells if cell is not None]
    if not present:
        return pa.nulls(len(column), pa.list_(pa.null()))
    try:
        entries: Column = np.concatenate(present)
    except ValueError:  # of different shapes
        entries = [entry for cell in present for entry in cell]
    ends = np.cumsum([0 if cell is None else len(cell) for cell in cells])
    missing = pa.array([cell is None for cell in cells])
    return pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), to_arrow(entries), mask=missing)


def rank(column: pa.ChunkedArray) -> int | None:
    """Return the number of dimensions of the first array in a column of `TENSOR`, or None if all values are null."""
    for chunk in column.chunks:
        for cell in chunk.drop_null()[:1]:
            return len(cell["shape"])
    return None


def is_missing(value: Any) -> bool:
    """Return True if a value represents null: None, NumPy's masked value, or the missing values of pandas (NaT, NA)."""
    return (
        value is None
        or value is np.ma.masked
        or (is_pandas_value(value) and type(value).__name__ in ("NaTType", "NAType"))
    )


def is_pandas_value(value: Any) -> bool:
    """Return True for a scalar of pandas (Timestamp, Timedelta, NaT, NA, ...), without an import of pandas."""
    return type(value).__module__.split(".")[0] == "pandas"


def same(values: Any, before: Any) -> bool:
    """Return True if two values from `to_numpy`, and the values nested in them, are equal; arrays bit by bit."""
    if type(values) is not type(before):
        return False
    if isinstance(values, np.ndarray) and values.dtype != object:
        if values.dtype != before.dtype or values.shape != before.shape:
            return False
        first, second = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (values, before))
        return bool(np.array_equal(first, second))
    if isinstance(values, dict):
        return list(values) == list(before) and all(same(values[key], before[key]) for key in values)
    if isinstance(values, np.ndarray | list | tuple):
        return len(values) == len(before) and all(map(same, values, before))
    return bool(values is before or values == before)


def _stacked_to_arrow(values: np.ndarray) -> pa.Array:
    values = np.ascontiguousarray(values)
    count, shape = len(values), values.shape[1:]
    row_bytes = values[0].nbytes if count else 0
    offsets = np.arange(count + 1, dtype=np.int64) * row_bytes
    buffer = pa.py_buffer(values.reshape(-1).view(np.uint8)) if values.size else pa.py_buffer(b"")
    data = pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), buffer])
    shapes = pa.ListArray.from_arrays(
        pa.array(np.arange(count + 1) * len(shape), pa.int32()), pa.array(np.tile(shape, count), pa.int32())
    )
    return pa.StructArray.from_arrays(
        [pa.array([values.dtype.str] * count, pa.string()), shapes, data], fields=list(TENSOR)
    )


def _tensors_to_arrow(values: Iterable[Any]) -> pa.Array:
    cells = []
    for value in values:
        array = None if value is None else np.ascontiguousarray(value)
        cells.append(None if array is None else (array.dtype.str, list(array.shape), array.tobytes()))
    return pa.array(
        [None if cell is None else dict(zip(("dtype", "shape", "data"), cell, strict=True)) for cell in cells], TENSOR
    )


def _tensors_to_numpy(array: pa.StructArray) -> np.ndarray:
    count = len(array)
    dtypes, data = array.field("dtype"), array.field("data")
    shapes = array.field("shape")
    flat = shapes.flatten().to_numpy() if count else np.empty(0, np.int32)
    one_shape = count and not array.null_count and len(flat) % count == 0
    if one_shape:
        per_row = flat.reshape(count, -1)
        one_shape = bool((per_row == per_row[0]).all()) and len(pc.unique(dtypes)) == 1
    if one_shape and not data.null_count:
        dtype, shape = np.dtype(dtypes[0].as_py()), tuple(int(n) for n in per_row[0])
        offsets = np.frombuffer(data.buffers()[1], np.int64)[data.offset : data.offset + count + 1]
        if data.buffers()[2] is None:
            return np.empty((count, *shape), dtype)
        raw = np.frombuffer(data.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        return raw.view(dtype).reshape(count, *shape) if raw.size else np.empty((count, *shape), dtype)
    result = np.empty(count, object)
    for row, cell in enumerate(array):
        if cell.is_valid:
            dtype, shape = np.dtype(cell["dtype"].as_py()), cell["shape"].as_py()
            result[row] = np.frombuffer(cell["data"].as_buffer(), dtype).reshape(shape)
    return result


def _texts_to_numpy(array: pa.StringArray) -> np.ndarray:
    """Return texts as Python objects. A text that many rows have becomes one object, such as the URI of a table."""
    if len(array[:FIRST_TEXTS].unique()) > REPEATED_TEXTS or len(array) < FIRST_TEXTS:
        return array.to_numpy(zero_copy_only=False)
    coded = array.dictionary_encode()
    texts = np.append(coded.dictionary.to_numpy(zero_copy_only=False), [None])
    return texts[coded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)]


def _without_stray_nan(values: list[Any]) -> list[Any]:
    """Return the values with None for NaN if the others are not numbers: pandas uses NaN for a null text or bool."""
    others = [value for value in values if value is not None and not (isinstance(value, float) and math.isnan(value))]
    is_number = all(isinstance(value, bool | int | float | np.number) for value in others)
    if is_number and not (others and all(isinstance(value, bool) for value in others)):
        return values
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def _pandas_times(values: list[Any]) -> pa.Array:
    """Convert pandas values with their own unit and zone: `pa.array` truncates nanoseconds."""
    import pandas as pd

    series = pd.Series(values)
    return pa.array(values) if series.dtype == object else pa.Array.from_pandas(series)


def _plain(value: Any) -> Any:
    """Return a row's value: an array of one or more dimensions in this machine's byte order, or a Python value."""
    if is_missing(value):
        return None
    if hasattr(value, "__array__"):
        value = np.asarray(value)
        if not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        return value if value.ndim else value[()] if value.dtype.kind in "mM" else value.item()
    return value
