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
from overnight.tasks.rows.tensors import Column, is_missing, is_pandas_value, to_arrow

PLAIN = frozenset({type(None), bool, int, float, str, bytes})
SCALARS = (bool, int, float, str, bytes, decimal.Decimal, datetime.date, datetime.timedelta, pa.Scalar)
OWN_TO_NUMPY = "biufmMUS"  # the kinds of NumPy's own types that Arrow has, too
TIME_UNITS = ("D", "s", "ms", "us", "ns")  # the units that Arrow has; D for dates alone
MOST_DIGITS = 76  # of Arrow's decimals
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
REMEDY = "Use numbers, texts, bytes, times, lists, dicts or arrays, or JSON text"


def plain_column(name: str, values: Column) -> Column:
    """Return the values of column `name` as an array or a list that `to_arrow` takes; such values stay unchanged."""
    if isinstance(values, pa.Array):
        _require_storable(name, values.type)
        return values
    is_pandas = is_pandas_value(values)
    if hasattr(values, "__arrow_c_stream__") and not is_pandas:
        # Polars has it, too. Through NumPy, whole numbers with nulls would be rounded.
        return arrow_types.plain_column(pa.chunked_array(values))
    dtype = getattr(values, "dtype", None)
    if is_pandas and str(dtype).startswith("Sparse"):
        values = np.asarray(values)
    elif is_pandas and not isinstance(dtype, np.dtype):
        return _of_pandas(name, values)
    if isinstance(values, np.ma.MaskedArray):
        return _masked_column(name, values)
    if hasattr(values, "__array__"):
        values = _array(name, values)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    kinds = set(map(type, values))
    if kinds <= PLAIN and not {str, bytes} <= kinds:
        return values
    cells = [_cell(name, value) for value in values]
    _require_one_kind(name, cells)
    return cells


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
        fields = value.model_dump()
        return fields if isinstance(fields, dict) else None
    return None


def _plain(name: str, value: Any) -> Any:
    """Return one value of column `name`, or a value inside it."""
    if type(value) in PLAIN or is_pandas_value(value):
        return value
    if isinstance(value, enum.Enum):
        return _plain(name, value.value)
    fields = fields_of(value)
    if fields is not None:
        return {_key(name, key): _inner(name, inner) for key, inner in fields.items()}
    for is_such, convert in CONVERSIONS:
        if is_such(value):
            return convert(name, value)
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


def _scalar(name: str, value: Any) -> Any:
    _require_arrow_type(name, getattr(value, "dtype", None))
    return value


def _list(name: str, values: Iterable[Any]) -> list[Any]:
    entries = list(values)
    return entries if set(map(type, entries)) <= PLAIN else [_inner(name, entry) for entry in entries]


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
    """Return a tensor or array in types that NumPy has by itself; objects in it become plain values.

    bfloat16, float8 and 4-bit numbers of PyTorch or ml_dtypes become float32, or int8 and uint8: the same numbers.
    """
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.Tensor):
        value = _of_torch(torch, value)
    array = value if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    _require_arrow_type(name, array.dtype)
    if array.dtype.names:
        cells = np.empty(array.shape, object)
        for index in np.ndindex(array.shape):
            cells[index] = _plain(name, {field: array[field][index] for field in array.dtype.names})
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
        kind, units = ("datetime64", TIME_UNITS) if dtype.kind == "M" else ("timedelta64", TIME_UNITS[1:])
        unit, count = np.datetime_data(dtype)
        if unit not in units or count != 1:
            values = f"{dtype} values, and a column has the units {', '.join(units)}"
            raise _refused(name, values, f"Use astype('{kind}[s]')")


def _require_storable(name: str, kind: pa.DataType) -> None:
    """Raise `InvalidValues` for a type of Arrow that no file of tables has."""
    for inner in arrow_types.kinds_in(kind):
        if pa.types.is_union(inner) or pa.types.is_interval(inner):
            message = f"values of the type {inner}, which tables in files lack"
            raise _refused(name, message, "Use another type, or JSON text")


def _masked_column(name: str, values: np.ma.MaskedArray) -> Column:
    """Return a column with null for its masked values. Raise `InvalidValues` if a part of a row's array is masked."""
    array, mask = _array(name, values.data), np.ma.getmaskarray(values)
    if mask.ndim == 1 and array.dtype.kind in "biufmM":
        return pa.array(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")), mask=mask)
    entries = mask.reshape(len(mask), -1)
    is_masked = np.asarray(entries.any(axis=1))
    if not np.array_equal(is_masked, entries.all(axis=1)):
        raise _masked_entries(name)
    cells = list(array)
    for row in np.flatnonzero(is_masked):
        cells[row] = None
    return plain_column(name, cells)


def _of_pandas(name: str, values: Any) -> Any:
    """Return values in a type of pandas. Raise `InvalidValues` for periods and intervals, which only pandas has."""
    if str(getattr(values, "dtype", "")).startswith(("period", "interval")):
        raise _refused(name, f"{values.dtype} values of pandas", "Use astype(str), or their bounds in two columns")
    return values


def _refuse_beyond(name: str, values: Column) -> None:
    """Raise `InvalidValues` for the first value that is too large or has no form in Arrow, also inside others."""
    queue = deque(values)
    while queue:
        value = queue.popleft()
        if isinstance(value, Mapping):
            queue.extend(value.values())
        elif isinstance(value, list) or (isinstance(value, np.ndarray) and value.dtype == object):
            queue.extend(value)
        elif isinstance(value, int | np.integer):
            _refuse_large_number(name, value)
        elif isinstance(value, decimal.Decimal):
            _refuse_decimal(name, value)
        elif isinstance(value, datetime.timedelta) and abs(value // datetime.timedelta(microseconds=1)) >= 2**63:
            raise _refused(name, f"a duration of {value.days} days, beyond 64 bits", "Use seconds as numbers")
        elif isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            message = f"a text with half of a character, {value!r:.80}, which UTF-8 lacks"
            raise _refused(name, message, "Use text.encode('utf-8', 'replace').decode()")


def _refuse_large_number(name: str, value: int | np.integer) -> None:
    if 2**63 <= value < 2**64:
        message = f"whole numbers above 2**63 - 1, such as {value}, in a list"
        raise _refused(name, message, "Use numpy.array(values, numpy.uint64), text (str) or Decimal")
    if not -(2**63) <= value < 2**63:
        raise _refused(name, f"whole numbers beyond 64 bits, such as {value}", "Use text (str) or Decimal")


def _refuse_decimal(name: str, value: decimal.Decimal) -> None:
    if not value.is_finite():
        raise _refused(name, f"Decimal({str(value)!r}), which decimals in a column lack", "Use None, or floats")
    _, digits, exponent = value.as_tuple()
    count = max(len(digits), -int(exponent)) + max(int(exponent), 0)
    if count > MOST_DIGITS:
        raise _refused(name, f"a Decimal of {count} digits, and a column has at most {MOST_DIGITS}", "Use text (str)")


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


def is_image(value: Any) -> bool:
    """Return True for an image of PIL, without an import of it."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def _require_one_kind(name: str, cells: Sequence[Any]) -> None:
    """Raise `InvalidValues` for values that would be converted into each other, and lose a zone, a time or a shape.

    Values at the same place in dicts and lists need one kind, too.
    """
    types = set(map(type, cells))
    if types <= PLAIN and not {str, bytes} <= types:
        return
    kinds = {_kind(cell) for cell in cells if not is_missing(cell)} - {""}  # NaT of pandas is a datetime
    if len(kinds) > 1:
        raise _refused(name, " and ".join(sorted(kinds)), "Use one type, or None for no value")
    values_by_key: dict[str, list[Any]] = {}
    entries: list[Any] = []
    for cell in cells:
        if isinstance(cell, dict):
            for key, value in cell.items():
                values_by_key.setdefault(key, []).append(value)
        elif isinstance(cell, list) or (isinstance(cell, np.ndarray) and cell.dtype.hasobject):
            entries.extend(cell)
    for key, values in values_by_key.items():
        _require_one_kind(f"{name}.{key}", values)
    if entries:
        _require_one_kind(name, entries)


def _kind(cell: Any) -> str:
    if isinstance(cell, datetime.datetime):
        return "times with a zone" if cell.tzinfo else "times without a zone"
    if isinstance(cell, int | float | np.number):
        return "numbers" if cell == cell else ""  # noqa: PLR0124 - pandas has NaN for a missing value of any kind
    if isinstance(cell, np.ndarray):
        return "arrays" if cell.ndim else "numbers"
    kinds = {datetime.date: "dates", str: "texts", bytes: "bytes"}
    return next((plural for kind, plural in kinds.items() if isinstance(cell, kind)), "")


def _refused(name: str, found: str, remedy: str) -> InvalidValues:
    return InvalidValues(f"column {name!r}: found {found}. {remedy}.")


def _is_scalar(value: Any) -> bool:
    if isinstance(value, np.generic):
        return value.dtype.kind in OWN_TO_NUMPY
    return isinstance(value, SCALARS)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


# The accepted values: the first test that holds selects the conversion. Before them, `_plain` replaces a member of an
# enum by its value, and converts what has fields (`fields_of`) to a dict.
CONVERSIONS: tuple[tuple[Callable[[Any], bool], Callable[[str, Any], Any]], ...] = (
    (_is(AbstractSet), _in_order),  # to a list
    (_is(bytearray, memoryview), lambda _, value: bytes(value)),
    (_is(datetime.time), _time),
    (_is_scalar, _scalar),
    (_is(os.PathLike), lambda _, path: os.fspath(path)),
    (_is(uuid.UUID), lambda _, identity: str(identity)),
    (is_image, _png),  # to the bytes of a PNG file of the same mode
    (lambda value: hasattr(value, "__array__"), _array),  # also a tensor of PyTorch on any device
    (_is(Sequence, deque, Iterator), _list),  # also a tuple, a range and a generator
    (lambda value: hasattr(value, "model_dump"), lambda name, model: _plain(name, model.model_dump())),  # a RootModel
)
