"""Convert arrays to Arrow columns and back.

In blocks, arrays (images, embeddings) have the type `TENSOR`, a plain Arrow struct. So rows of different shapes and
null rows fit into one column, and a stacked array needs no copy.
"""

import math
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows.nulls import present

TENSOR = pa.struct([("dtype", pa.string()), ("shape", pa.list_(pa.int32())), ("data", pa.large_binary())])
# if the first rows have at most these different texts, the column repeats them
FIRST_TEXTS, REPEATED_TEXTS = 1024, 64
Column = Any  # pa.Array, pa.ChunkedArray, np.ndarray or a sequence, one value per row


def to_numpy(column: pa.ChunkedArray, writable: bool = False) -> np.ndarray:
    """Return a column as one array: stacked tensors, a matrix of fixed-size lists, otherwise as `pyarrow` converts it.

    Tensors of several shapes, and other lists, become an object array of arrays. `writable` copies what is read-only.
    """
    array = column
    if isinstance(column, pa.ChunkedArray):
        array = column.combine_chunks()
    if array.type == TENSOR:
        result = _tensors_to_numpy(array)
    elif pa.types.is_fixed_size_list(array.type) and not array.null_count and not array.flatten().null_count:
        numbers = array.flatten().to_numpy(zero_copy_only=False)
        result = numbers.reshape(len(array), array.type.list_size)
    elif pa.types.is_string(array.type):
        return _texts_to_numpy(array)
    else:
        result = array.to_numpy(zero_copy_only=False)
    if not writable:
        return result
    if not result.flags.writeable:
        result = result.copy()
    if result.dtype == object:
        for row, cell in enumerate(result):
            if isinstance(cell, np.ndarray) and not cell.flags.writeable:
                result[row] = cell.copy()
    return result


def to_arrow(values: Column) -> pa.Array:
    """Return a column's values, one per row, as an Arrow array. Arrays in it become `TENSOR`.

    Raise `pa.ArrowException` for values without an Arrow type.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if not isinstance(values, np.ndarray) and hasattr(values, "__array__"):
        dtype = getattr(values, "dtype", None)
        if not isinstance(dtype, np.dtype) and getattr(dtype, "kind", "") in list("biufM"):
            # NumPy has no nulls and no zones for these types of pandas
            return pa.Array.from_pandas(values)
        values = np.asarray(values)  # torch, jax and pandas values on the host
    if not isinstance(values, np.ndarray) or values.dtype == object:
        return _cells_to_arrow(list(values))
    values = in_native_order(values)
    if values.ndim > 1:
        return _stacked_to_arrow(values)
    if values.dtype.kind in "US":
        return pa.array(values.tolist())
    if values.dtype.kind in "mM":
        values = _in_arrow_units(values)
    return pa.array(values)


def _cells_to_arrow(cells: list[Any]) -> pa.Array:
    cells = _without_stray_nan(list(map(_plain, cells)))
    arrays = [cell for cell in cells if isinstance(cell, np.ndarray)]
    if any(array.dtype == object for array in arrays):  # its bytes would be addresses
        return pa.array([cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in cells])
    if any(map(is_pandas_value, cells)):
        return _pandas_times(cells)
    kinds = set(map(type, cells)) & {np.datetime64, np.timedelta64}
    if kinds:
        missing = kinds.pop()("NaT")
        return pa.array(np.array([missing if cell is None else cell for cell in cells]))
    if arrays:
        return _tensors_to_arrow(cells)
    return pa.array(cells)


def _plain(cell: Any) -> Any:
    """Return a row's value: an array of one or more dimensions in this machine's byte order, or a Python value."""
    if is_missing(cell):
        return None
    if not hasattr(cell, "__array__"):
        return cell
    array = in_native_order(np.asarray(cell))
    if array.ndim:
        return array
    return array[()] if array.dtype.kind in "mM" else array.item()


def in_native_order(array: np.ndarray) -> np.ndarray:
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def _without_stray_nan(cells: list[Any]) -> list[Any]:
    """Return the cells with None for NaN if the others are not numbers: pandas uses NaN for a null text or bool."""
    values = [cell for cell in cells if cell is not None and not _is_nan(cell)]
    are_numbers = all(isinstance(value, bool | int | float | np.number) for value in values)
    are_bools = bool(values) and all(isinstance(value, bool) for value in values)
    if are_numbers and not are_bools:
        return cells
    return [None if _is_nan(cell) else cell for cell in cells]


def _is_nan(cell: Any) -> bool:
    return isinstance(cell, float) and math.isnan(cell)


def _pandas_times(cells: list[Any]) -> pa.Array:
    """Convert pandas values with their own unit and zone: `pa.array` truncates nanoseconds."""
    import pandas as pd

    series = pd.Series(cells)
    if series.dtype == object:
        return pa.array(cells)
    return pa.Array.from_pandas(series)


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
    exists = ~np.isnat(times)
    if not np.array_equal(values.astype(times.dtype)[exists], times[exists]):
        raise pa.ArrowInvalid(f"a time of {times.dtype} that {values.dtype} cannot represent")
    return values


def as_lists(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column of `TENSOR` as lists of the arrays' entries, and a column of another type unchanged."""
    if column.type != TENSOR:
        return column
    cells = to_numpy(column)
    arrays = present(cells)
    if not arrays:
        return pa.nulls(len(column), pa.list_(pa.null()))
    try:
        entries: Column = np.concatenate(arrays)
    except ValueError:  # of different shapes
        entries = list(chain.from_iterable(arrays))
    lengths = np.array([-1 if cell is None else len(cell) for cell in cells])
    ends = np.cumsum(np.maximum(lengths, 0))
    return pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), to_arrow(entries), mask=pa.array(lengths < 0))


def rank(column: pa.ChunkedArray) -> int | None:
    """Return the number of dimensions of the first array in a column of `TENSOR`, or None if all values are null."""
    for chunk in column.chunks:
        for cell in chunk.drop_null()[:1]:
            return len(cell["shape"])
    return None


def is_missing(value: Any) -> bool:
    """Return True if a value represents null: None, NumPy's masked value, or the missing values of pandas (NaT, NA)."""
    if value is None or value is np.ma.masked:
        return True
    return is_pandas_value(value) and type(value).__name__ in ("NaTType", "NAType")


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
        first, second = np.ascontiguousarray(values), np.ascontiguousarray(before)
        return bool(np.array_equal(first.reshape(-1).view(np.uint8), second.reshape(-1).view(np.uint8)))
    if isinstance(values, dict):
        return list(values) == list(before) and all(same(values[key], before[key]) for key in values)
    if isinstance(values, np.ndarray | list | tuple):
        return len(values) == len(before) and all(map(same, values, before))
    return bool(values is before or values == before)


def _stacked_to_arrow(values: np.ndarray) -> pa.Array:
    values = np.ascontiguousarray(values)
    count = len(values)
    if not count:
        return pa.array([], TENSOR)
    row_bytes = values.nbytes // count
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * row_bytes)
    content = pa.py_buffer(values.reshape(-1).view(np.uint8))
    data = pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, offsets, content])
    shapes = pa.repeat(pa.scalar(list(values.shape[1:]), pa.list_(pa.int32())), count)
    dtypes = pa.repeat(values.dtype.str, count)
    return pa.StructArray.from_arrays([dtypes, shapes, data], fields=list(TENSOR))


def _tensors_to_arrow(values: list[Any]) -> pa.Array:
    cells: list[dict[str, Any] | None] = []
    for value in values:
        if value is None:
            cells.append(None)
            continue
        array = np.ascontiguousarray(value)
        cells.append({"dtype": array.dtype.str, "shape": list(array.shape), "data": array.tobytes()})
    return pa.array(cells, TENSOR)


def _tensors_to_numpy(array: pa.StructArray) -> np.ndarray:
    result = _stacked_to_numpy(array)
    if result is not None:
        return result
    cells = np.empty(len(array), object)
    for row, cell in enumerate(array):
        if cell.is_valid:
            values = np.frombuffer(cell["data"].as_buffer(), np.dtype(cell["dtype"].as_py()))
            cells[row] = values.reshape(cell["shape"].as_py())
    return cells


def _stacked_to_numpy(array: pa.StructArray) -> np.ndarray | None:
    """Return tensors of one type and shape as one array, without a copy. Return None for others."""
    count = len(array)
    dtypes, shapes, data = map(array.field, ("dtype", "shape", "data"))
    if not count or array.null_count or data.null_count or len(pc.unique(dtypes)) > 1:
        return None
    if len(pc.unique(pc.list_value_length(shapes))) > 1:
        return None
    lengths = shapes.flatten().to_numpy().reshape(count, -1)
    if (lengths != lengths[0]).any():
        return None
    dtype, shape = np.dtype(dtypes[0].as_py()), (count, *lengths[0].tolist())
    _, offsets_buffer, values = data.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[data.offset : data.offset + count + 1]
    if offsets[0] == offsets[-1]:
        return np.empty(shape, dtype)
    return np.frombuffer(values, np.uint8)[offsets[0] : offsets[-1]].view(dtype).reshape(shape)


def _texts_to_numpy(array: pa.StringArray) -> np.ndarray:
    """Return texts as Python objects. A text that many rows have becomes one object, such as the URI of a table."""
    if len(array[:FIRST_TEXTS].unique()) > REPEATED_TEXTS or len(array) < FIRST_TEXTS:
        return array.to_numpy(zero_copy_only=False)
    codes = array.dictionary_encode()
    texts = np.append(codes.dictionary.to_numpy(zero_copy_only=False), [None])
    return texts[codes.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)]
