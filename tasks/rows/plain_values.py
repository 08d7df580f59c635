"""Convert values that Python code returns for a column to values that `tensors.to_arrow` takes without a loss.

`CONVERSIONS` has the accepted values of a row, and `plain_column` the accepted columns. A value that no column can have
raises `InvalidValues`, which names the column, the type and the remedy.
"""

import dataclasses
import datetime
import decimal
import enum
import io
import os
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import InvalidValues
from overnight.tasks.rows import arrow_types
from overnight.tasks.rows.tensors import Column, in_native_order, is_missing, is_pandas_value, to_arrow
from overnight.tasks.rows.unstorable import (
    PLAIN,
    Unstorable,
    masked_entries,
    refuse_beyond,
    require_arrow_type,
    require_one_kind,
    require_storable,
)

OWN_TO_NUMPY = "biufmMUS"  # the kinds of NumPy's own types that Arrow has, too
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
REMEDY = "Use numbers, texts, bytes, times, lists, dicts or arrays, or JSON text"


def plain_column(name: str, values: Column) -> Column:
    """Return the values of column `name` as an array or a list that `to_arrow` takes; such values stay unchanged."""
    try:
        return _plain_column(values)
    except Unstorable as error:
        raise error.in_column(name) from None


def arrow_column(name: str, values: Column) -> pa.Array:
    """Return the values of column `name` as Arrow. Raise `InvalidValues`, with the reason, if they have no type."""
    try:
        return to_arrow(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        try:
            refuse_beyond(values)
        except Unstorable as reason:
            raise reason.in_column(name) from error
        raise InvalidValues(
            f"column {name!r}: expected values of one type, found others ({error}). Return one type, or JSON text."
        ) from error


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields, by name, of a mapping, dataclass, namedtuple, or pydantic or attrs object; otherwise None."""
    kind = type(value)
    # first: the outputs of transformers are also dataclasses, with fields left empty
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return dict(zip(kind._fields, value, strict=True))
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    if hasattr(kind, "model_fields") and hasattr(kind, "model_dump"):
        fields = value.model_dump()
        return fields if isinstance(fields, dict) else None
    return None


def is_image(value: Any) -> bool:
    """Return True for an image of PIL, without an import of it."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def _plain_column(values: Column) -> Column:
    if isinstance(values, pa.Array):
        require_storable(values.type)
        if arrow_types.plain_type(values.type) == values.type:
            return values
        return arrow_types.plain_column(pa.chunked_array([values]))  # Arrow cannot select rows of views
    is_pandas = is_pandas_value(values)
    if hasattr(values, "__arrow_c_stream__") and not is_pandas:
        # Polars has it, too. Through NumPy, whole numbers with nulls would be rounded.
        return arrow_types.plain_column(pa.chunked_array(values))
    dtype = getattr(values, "dtype", None)
    if is_pandas and str(dtype).startswith("Sparse"):
        values = np.asarray(values)
    elif is_pandas and not isinstance(dtype, np.dtype):
        return _of_pandas(values)
    if isinstance(values, np.ma.MaskedArray):
        return _masked_column(values)
    if hasattr(values, "__array__"):
        values = _array(values)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    kinds = set(map(type, values))
    if kinds <= PLAIN and not {str, bytes} <= kinds:
        return values
    cells = list(map(_plain, values))
    for cell in cells:
        if isinstance(cell, np.ma.MaskedArray) and cell.ndim and np.ma.is_masked(cell):
            raise masked_entries()
    require_one_kind(cells, "")
    return cells


def _plain(value: Any) -> Any:
    """Return one value of a column, or a value inside it."""
    if type(value) in PLAIN or is_pandas_value(value):
        return value
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    fields = fields_of(value)
    if fields is not None:
        return {_key(key): _inner(inner) for key, inner in fields.items()}
    for is_such, convert in CONVERSIONS:
        if is_such(value):
            return convert(value)
    raise Unstorable(f"a value of type {type(value).__name__}", REMEDY)


def _inner(value: Any) -> Any:
    """Return a value inside another one. Arrow takes arrays of one dimension there, and lists of lists."""
    value = _plain(value)
    if is_pandas_value(value):
        if is_missing(value):
            return None
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            problem = f"a {type(value).__name__} of pandas with nanoseconds inside a value"
            raise Unstorable(problem, "Use to_numpy(), or a column of it")
        if hasattr(value, "dtype"):
            return to_arrow(_of_pandas(value)).to_pylist()
        return value
    if isinstance(value, np.ma.MaskedArray) or (isinstance(value, np.ndarray) and value.ndim != 1):
        return value.tolist()  # None for masked values
    if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] == "D":
        return value.item()  # Arrow takes a date there, and no day of NumPy
    return value


def _list(values: Iterable[Any]) -> list[Any]:
    entries = list(values)
    if set(map(type, entries)) <= PLAIN:
        return entries
    return list(map(_inner, entries))


def _in_order(values: AbstractSet) -> list[Any]:
    try:
        return sorted(_list(values))
    except TypeError:
        raise Unstorable("a set whose values have no order", "Use a list") from None


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if not isinstance(key, str):
        raise Unstorable(f"a dict with a key of type {type(key).__name__}", "Use texts as keys")
    return str(key)


def _time(value: datetime.time) -> datetime.time:
    if value.tzinfo is not None:
        raise Unstorable("a time of day with a zone, which no column has", "Use a datetime, or its text")
    return value


def _png(image: Any) -> bytes:
    if image.mode not in PNG_MODES:
        remedy = "Use image.convert('RGB') or another of these, or the pixels as an array: numpy.asarray(image)"
        raise Unstorable(f"an image of mode {image.mode}, and PNG has {', '.join(PNG_MODES)}", remedy)
    if getattr(image, "n_frames", 1) > 1:
        raise Unstorable(f"an image of {image.n_frames} frames", "Use one of them: image.copy()")
    if not all(image.size):
        raise Unstorable(f"an image of {image.width} x {image.height} pixels", "Use None for no image")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _scalar(value: np.generic) -> Any:
    if value.dtype.kind not in OWN_TO_NUMPY:
        return _array(value)
    require_arrow_type(value.dtype)
    return value


def _array(value: Any) -> np.ndarray:
    """Return a tensor or array in types that NumPy has by itself; objects in it become plain values.

    bfloat16, float8 and 4-bit numbers of PyTorch or ml_dtypes become float32, or int8 and uint8: the same numbers.
    """
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.Tensor):
        value = _of_torch(torch, value)
    array = value
    if not isinstance(value, np.ma.MaskedArray):
        array = np.asarray(value)
    require_arrow_type(array.dtype)
    if array.dtype.names:
        cells = np.empty(array.shape, object)
        for index in np.ndindex(array.shape):
            cells[index] = _plain({field: array[field][index] for field in array.dtype.names})
        return cells
    if array.dtype.type.__module__ == "ml_dtypes":
        wider = {"u": np.uint8, "i": np.int8}
        return array.astype(wider.get(array.dtype.name[0], np.float32))
    return array


def _of_torch(torch: Any, tensor: Any) -> np.ndarray:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 4 and tensor.dtype != torch.float16:
        tensor = tensor.float()
    return np.asarray(tensor.cpu().resolve_conj().resolve_neg().numpy())


def _of_pandas(values: Any) -> Any:
    """Return values in a type of pandas, but refuse periods and intervals, which only pandas has."""
    if str(getattr(values, "dtype", "")).startswith(("period", "interval")):
        raise Unstorable(f"{values.dtype} values of pandas", "Use astype(str), or their bounds in two columns")
    return values


def _masked_column(values: np.ma.MaskedArray) -> Column:
    """Return a column with null for its masked values, but refuse a row's array that is masked in part."""
    array, mask = _array(values.data), np.ma.getmaskarray(values)
    if mask.ndim == 1 and array.dtype.kind in "biufmM":
        return pa.array(in_native_order(array), mask=mask)
    entries = mask.reshape(len(mask), -1)
    row_mask = np.asarray(entries.any(axis=1))
    if not np.array_equal(row_mask, entries.all(axis=1)):
        raise masked_entries()
    cells = list(array)
    for row in np.flatnonzero(row_mask):
        cells[row] = None
    return _plain_column(cells)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _as_it_is(value: Any) -> Any:
    return value


# The accepted values: the first test that holds selects the conversion. Before them, `_plain` replaces a member of an
# enum by its value, and converts what has fields (`fields_of`) to a dict.
CONVERSIONS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    (_is(AbstractSet), _in_order),
    (_is(bytearray, memoryview), bytes),
    (_is(datetime.time), _time),
    (_is(*PLAIN, decimal.Decimal, datetime.date, datetime.timedelta, pa.Scalar), _as_it_is),
    (_is(np.generic), _scalar),
    (_is(os.PathLike), os.fspath),
    (_is(uuid.UUID), str),
    (is_image, _png),  # a PNG file of the same mode
    (lambda value: hasattr(value, "__array__"), _array),  # also a tensor of PyTorch on any device
    (_is(Sequence, deque, Iterator), _list),  # also a tuple, a range and a generator
    # a RootModel of pydantic
    (lambda value: hasattr(value, "model_dump"), lambda model: _plain(model.model_dump())),
)
