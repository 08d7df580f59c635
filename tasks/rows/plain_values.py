"""Convert values that Python code returns for a column to values that `tensors.to_arrow` takes without a loss.

| value | becomes |
| --- | --- |
| a dataclass, a namedtuple, a pydantic or attrs object, any mapping | a dict of its fields: a struct |
| a set | a list in the order of its values |
| a tuple, a range, a generator, any other sequence | a list |
| an enum's member | its value |
| a path, a UUID | its text |
| a bytearray, a memoryview | bytes |
| an image of PIL | the bytes of a PNG file of the same mode |
| a tensor of PyTorch on any device, with a gradient, or sparse | an array |
| bfloat16, float8 and 4-bit numbers of PyTorch or ml_dtypes | float32, or int8 and uint8: the same numbers |
| a masked value of NumPy, NA or NaT of pandas | null |

A value that no column can have raises `InvalidValues`. The message names the column, the type and the remedy.

The code may use the memory of its results again, for its next batch or its next yield. So `owned` and `snapshot` copy
them at the moment of the return.
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
from overnight.tasks.rows.tensors import Column, is_missing, is_pandas_value, to_arrow

PLAIN = frozenset({type(None), bool, int, float, str, bytes})
KNOWN = (bool, int, float, str, bytes, decimal.Decimal, datetime.date, datetime.timedelta, pa.Scalar)
KNOWN_TO_NUMPY = "biufmMUS"  # the kinds of NumPy's own types that Arrow has, too
TIME_UNITS = ("D", "s", "ms", "us", "ns")  # the units that Arrow has; D for dates alone
MOST_DIGITS = 76  # of Arrow's decimals
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
REMEDY = "Use numbers, texts, bytes, times, lists, dicts or arrays, or JSON text"


def plain_column(name: str, values: Column) -> Column:
    """Return the values of column `name` as an array or a list that `to_arrow` takes; such values stay unchanged."""
    if isinstance(values, pa.Array):
        _require_storable(name, values.type)
        return values
    if hasattr(values, "__arrow_c_stream__") and not is_pandas_value(values):
        # Polars has it, too. Through NumPy, whole numbers with nulls would be rounded.
        return arrow_types.plain_column(pa.chunked_array(values))
    dtype = getattr(values, "dtype", None)
    if is_pandas_value(values) and not isinstance(dtype, np.dtype):
        if str(dtype).startswith("Sparse"):
            return plain_column(name, np.asarray(values))
        return _of_pandas(name, values)
    if isinstance(values, np.ma.MaskedArray):
        return _masked(name, values)
    values = _array(name, values) if hasattr(values, "__array__") else values
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    kinds = set(map(type, values))
    if kinds <= PLAIN and not {str, bytes} <= kinds:
        return values
    cells = [_cell(name, value) for value in values]
    _require_one_kind(name, cells)
    return cells


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
    if not is_pandas_value(value) and (fields := fields_of(value)) is not None:
        return {name: snapshot(inner) for name, inner in fields.items()}
    if isinstance(value, list | tuple):
        return [snapshot(inner) for inner in value]
    is_image = (image := _image_module()) is not None and isinstance(value, image.Image)
    if getattr(value, "n_frames", 1) > 1:  # a copy would have one of them
        return value
    if isinstance(value, memoryview):
        return value.tobytes()
    if isinstance(value, np.ndarray) and value.dtype == object:
        return _copied_objects(value)
    if is_pandas_value(value) and hasattr(value, "isetitem"):
        return _copied_frame(value)
    if is_pandas_value(value) and str(getattr(value, "dtype", "")) == "object" and hasattr(value, "index"):
        return type(value)(_copied_objects(value.to_numpy()), index=value.index, name=value.name, dtype=object)
    if not (is_image or hasattr(value, "__array__") or isinstance(value, bytearray | deque | AbstractSet)):
        return value
    copy: Callable[[], Any] | None = getattr(value, "clone", None) or getattr(value, "copy", None)
    return copy() if copy else value


def _copied_objects(values: np.ndarray) -> np.ndarray:
    """Return a copy of an array of objects, with a copy of each object."""
    copied = values.copy()
    objects = np.ma.getdata(copied)
    for place in np.ndindex(objects.shape) if objects.ndim else ():
        objects[place] = snapshot(objects[place])
    return copied


def _copied_frame(frame: Any) -> Any:
    """Return a copy of a DataFrame of pandas, with a copy of each object in it."""
    copied = frame.copy()
    for place, dtype in enumerate(frame.dtypes):
        if str(dtype) == "object":
            copied.isetitem(place, snapshot(frame.iloc[:, place]))
    return copied


def arrow_column(name: str, values: Column) -> pa.Array:
    """Return the values of column `name` as Arrow. Raise `InvalidValues`, with the reason, if they have no type."""
    try:
        return to_arrow(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        _refuse_beyond(name, values)
        raise InvalidValues(
            f"column {name!r}: expected values of one type, found others ({error}). Return one type, or JSON text."
        ) from error


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields, by name, of a mapping, dataclass, namedtuple, or pydantic or attrs object; otherwise None."""
    kind = type(value)
    if isinstance(value, Mapping):  # first: the outputs of transformers are also dataclasses, with fields left empty
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
        found = value.model_dump()
        return found if isinstance(found, dict) else None
    return None


def _plain(name: str, value: Any) -> Any:
    """Return one value of column `name`, or a value inside it."""
    if type(value) in PLAIN or is_pandas_value(value):
        return value
    if isinstance(value, enum.Enum):
        return _plain(name, value.value)
    if (fields := fields_of(value)) is not None:
        return {_key(name, key): _inner(name, inner) for key, inner in fields.items()}
    if isinstance(value, AbstractSet):
        return _in_order(name, value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime.time):
        return _time(name, value)
    if isinstance(value, KNOWN) or (isinstance(value, np.generic) and value.dtype.kind in KNOWN_TO_NUMPY):
        _require_arrow_type(name, getattr(value, "dtype", None))
        return value
    if isinstance(value, os.PathLike | uuid.UUID):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if (image := _image_module()) and isinstance(value, image.Image):
        return _png(name, value)
    if hasattr(value, "__array__"):
        return _array(name, value)
    if isinstance(value, Sequence | deque | Iterator):
        return _list(name, value)
    if hasattr(value, "model_dump"):  # a pydantic RootModel
        return _plain(name, value.model_dump())
    raise _refused(name, f"a value of type {type(value).__name__}", REMEDY)


def _cell(name: str, value: Any) -> Any:
    """Return the value of a row in column `name`."""
    value = _plain(name, value)
    if isinstance(value, np.ma.MaskedArray) and value.ndim and np.ma.is_masked(value):
        raise _masked_entries(name)
    return value


def _masked_entries(name: str) -> InvalidValues:
    remedy = "Use filled(nan), or lists with None"
    return _refused(name, "arrays with masked entries, and an array in a column has no nulls", remedy)


def _inner(name: str, value: Any) -> Any:
    """Return a value inside another one. Arrow takes arrays of one dimension there, and lists of lists."""
    value = _plain(name, value)
    if is_pandas_value(value):
        return _inner_of_pandas(name, value)
    if isinstance(value, np.ma.MaskedArray) or (isinstance(value, np.ndarray) and value.ndim != 1):
        return value.tolist()  # None for masked values
    if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] == "D":
        return value.item()  # Arrow takes a date there, and no day of NumPy
    return value


def _inner_of_pandas(name: str, value: Any) -> Any:
    """Return a value of pandas inside another one in the form that Arrow takes there without a loss."""
    if is_missing(value):
        return None
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        kind = type(value).__name__
        raise _refused(name, f"a {kind} of pandas with nanoseconds inside a value", "Use to_numpy(), or a column of it")
    return to_arrow(_of_pandas(name, value)).to_pylist() if hasattr(value, "dtype") else value


def _list(name: str, values: Iterable[Any]) -> list[Any]:
    held = list(values)
    return held if set(map(type, held)) <= PLAIN else [_inner(name, value) for value in held]


def _in_order(name: str, values: AbstractSet) -> list[Any]:
    try:
        return sorted(_list(name, values))
    except TypeError:
        raise _refused(name, "a set whose values have no order", "Use a list") from None


def _key(name: str, key: Any) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if not isinstance(key, str):
        raise _refused(name, f"a dict with a key of type {type(key).__name__}", "Use texts as keys")
    return str(key)


def _array(name: str, value: Any) -> np.ndarray:
    """Return a tensor or array in types that NumPy has by itself; objects in it become plain values."""
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.Tensor):
        value = value.detach()
        value = value.dequantize() if value.is_quantized else value
        value = value.to_dense() if value.layout != torch.strided else value
        is_narrow = value.dtype.is_floating_point and value.dtype.itemsize < 4 and value.dtype != torch.float16
        value = (value.float() if is_narrow else value).cpu().resolve_conj().resolve_neg().numpy()
    array = value if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    _require_arrow_type(name, array.dtype)
    if array.dtype.names:
        names = array.dtype.names
        cells = np.empty(array.shape, object)
        for place in np.ndindex(array.shape):
            cells[place] = _plain(name, {field: array[field][place] for field in names})
        return cells
    if array.dtype.type.__module__ == "ml_dtypes":
        kind = array.dtype.name
        return array.astype(np.uint8 if kind.startswith("uint") else np.int8 if kind.startswith("int") else np.float32)
    return array


def _require_arrow_type(name: str, dtype: np.dtype | None) -> None:
    """Raise `InvalidValues` for numbers or times of NumPy that no type of Arrow holds. Other types pass."""
    if not isinstance(dtype, np.dtype):
        return
    if dtype.kind == "c":
        raise _refused(name, f"{dtype} numbers", "Use their real and imaginary parts in two columns")
    if dtype.kind == "f" and dtype.itemsize > 8 and not dtype.type.__module__.startswith("ml_dtypes"):
        raise _refused(name, f"{dtype} numbers, and a column has at most 64 bits for one", "Use astype(numpy.float64)")
    if dtype.kind == "V" and not dtype.names and dtype.type.__module__ == "numpy":
        raise _refused(name, f"raw memory ({dtype})", "Use bytes: [value.tobytes() for value in values]")
    if dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        units = TIME_UNITS if dtype.kind == "M" else TIME_UNITS[1:]
        if unit not in units or count != 1:
            remedy = f"Use astype('{'datetime64' if dtype.kind == 'M' else 'timedelta64'}[s]')"
            raise _refused(name, f"{dtype} values, and a column has the units {', '.join(units)}", remedy)


def _require_storable(name: str, kind: pa.DataType) -> None:
    """Raise `InvalidValues` for a type of Arrow that no file of tables has."""
    if pa.types.is_union(kind) or pa.types.is_interval(kind):
        raise _refused(name, f"values of the type {kind}, which tables in files lack", "Use another type, or JSON text")
    for place in range(kind.num_fields if pa.types.is_nested(kind) else 0):
        _require_storable(name, kind.field(place).type)


def _masked(name: str, values: np.ma.MaskedArray) -> Column:
    """Return a column with null for its masked values. Raise `InvalidValues` if a part of a row's array is masked."""
    array, mask = _array(name, values.data), np.ma.getmaskarray(values)
    if mask.ndim == 1 and array.dtype.kind in "biufmM":
        return pa.array(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")), mask=mask)
    gone = mask.reshape(len(mask), -1)
    is_missing_row = np.asarray(gone.any(axis=1))
    if not np.array_equal(is_missing_row, gone.all(axis=1)):
        raise _masked_entries(name)
    cells = [None if is_gone else cell for cell, is_gone in zip(array, is_missing_row, strict=True)]
    return plain_column(name, cells)


def _of_pandas(name: str, values: Any) -> Any:
    """Return values in a type of pandas. Raise `InvalidValues` for periods and intervals, which only pandas has."""
    if str(getattr(values, "dtype", "")).startswith(("period", "interval")):
        raise _refused(name, f"{values.dtype} values of pandas", "Use astype(str), or their bounds in two columns")
    return values


def _refuse_beyond(name: str, values: Column) -> None:
    """Raise `InvalidValues` for the first value that is too large or has no form in Arrow, also inside others."""
    waiting = deque(values)
    while waiting:
        value = waiting.popleft()
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list) or (isinstance(value, np.ndarray) and value.dtype == object):
            waiting.extend(value)
        elif isinstance(value, int | np.integer) and not -(2**63) <= int(value) < 2**63:
            found = f"whole numbers beyond 64 bits, such as {value}"
            if 0 < value < 2**64:
                found = f"whole numbers above 2**63 - 1, such as {value}, in a list"
                raise _refused(name, found, "Use numpy.array(values, numpy.uint64), text (str) or Decimal")
            raise _refused(name, found, "Use text (str) or Decimal")
        elif isinstance(value, decimal.Decimal) and not value.is_finite():
            raise _refused(name, f"Decimal({str(value)!r}), which decimals in a column lack", "Use None, or floats")
        elif isinstance(value, decimal.Decimal) and _digits(value) > MOST_DIGITS:
            found = f"a Decimal of {_digits(value)} digits, and a column has at most {MOST_DIGITS}"
            raise _refused(name, found, "Use text (str)")
        elif isinstance(value, datetime.timedelta) and abs(value // datetime.timedelta(microseconds=1)) >= 2**63:
            raise _refused(name, f"a duration of {value.days} days, beyond 64 bits", "Use seconds as numbers")
        elif isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            found = f"a text with half of a character, {value!r:.80}, which UTF-8 lacks"
            raise _refused(name, found, "Use text.encode('utf-8', 'replace').decode()")


def _digits(value: decimal.Decimal) -> int:
    _, digits, exponent = value.as_tuple()
    return max(len(digits), -int(exponent)) + max(int(exponent), 0)


def _copied(values: Any) -> Any:
    """Return arrays or tables of Arrow in memory of their own."""
    if isinstance(values, pa.Table | pa.RecordBatch):
        table = pa.table(values)
        return pa.table([_copied(column) for column in table.columns], names=table.column_names)
    if isinstance(values, pa.ChunkedArray):
        return _copied(values.combine_chunks()) if values.num_chunks else values
    return pa.concat_arrays([values, values[:0]])  # of one array, Arrow makes no copy


def _time(name: str, value: datetime.time) -> datetime.time:
    if value.tzinfo is not None:
        raise _refused(name, "a time of day with a zone, which no column has", "Use a datetime, or its text")
    return value


def _png(name: str, image: Any) -> bytes:
    if image.mode not in PNG_MODES:
        remedy = "Use image.convert('RGB') or another of these, or the pixels as an array: numpy.asarray(image)"
        raise _refused(name, f"an image of mode {image.mode}, and PNG has {', '.join(PNG_MODES)}", remedy)
    if getattr(image, "n_frames", 1) > 1:
        raise _refused(name, f"an image of {image.n_frames} frames", "Use one of them: image.copy()")
    if not all(image.size):
        raise _refused(name, f"an image of {image.width} x {image.height} pixels", "Use None for no image")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _image_module() -> Any:
    return sys.modules.get("PIL.Image")


def _require_one_kind(name: str, cells: Sequence[Any]) -> None:
    """Raise `InvalidValues` for values that would be converted into each other, and lose a zone, a time or a shape.

    Values at the same place in dicts and lists need one kind, too.
    """
    found = set(map(type, cells))
    if found <= PLAIN and not {str, bytes} <= found:
        return
    kinds = {_kind(cell) for cell in cells if not is_missing(cell)} - {""}  # NaT of pandas is a datetime
    if len(kinds) > 1:
        raise _refused(name, " and ".join(sorted(kinds)), "Use one type, or None for no value")
    dicts = [cell for cell in cells if isinstance(cell, dict)]
    for key in dict.fromkeys(key for cell in dicts for key in cell):
        _require_one_kind(f"{name}.{key}", [cell[key] for cell in dicts if key in cell])
    lists = [
        cell for cell in cells if isinstance(cell, list) or (isinstance(cell, np.ndarray) and cell.dtype.hasobject)
    ]
    if lists:
        _require_one_kind(name, [value for values in lists for value in values])


def _kind(cell: Any) -> str:
    if isinstance(cell, datetime.datetime):
        return "times with a zone" if cell.tzinfo else "times without a zone"
    if isinstance(cell, int | float | np.number):
        return "numbers" if cell == cell else ""  # noqa: PLR0124 - pandas has NaN for a missing value of any kind
    if isinstance(cell, np.ndarray):
        return "arrays" if cell.ndim else "numbers"
    kinds = {datetime.date: "dates", str: "texts", bytes: "bytes"}
    return next((told for kind, told in kinds.items() if isinstance(cell, kind)), "")


def _refused(name: str, found: str, remedy: str) -> InvalidValues:
    return InvalidValues(f"column {name!r}: found {found}. {remedy}.")
