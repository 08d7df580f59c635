"""Encode Arrow values as bytes that are equal if and only if the values are equal.

The width of a type does not matter, because files of one table may differ in it: 1 has the same bytes as int8 and as
double. -0.0 equals 0.0, and NaN equals NaN. Texts are compared byte by byte, and times as instants. Arrays are equal if
their shapes and values are equal, and both have integers or both have floats.
"""

import math
import struct
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import is_bytes, is_list, is_text
from overnight.tasks.rows.nulls import map_present
from overnight.tasks.rows.tensors import TENSOR, to_numpy

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
Encoded = list[bytes | None]


def encoded(column: pa.ChunkedArray | pa.Array, name: str) -> Encoded:
    """Return bytes for each value of a column, or None for null. Encodings can be joined: none begins another.

    Raise `ContractError`, with the column's `name`, for a type whose values cannot be compared.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # without a chunk
        array = pa.array([], array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if types.is_null(kind):
        return [None] * len(array)
    if kind == TENSOR:
        return list(map(_array, to_numpy(array)))
    if types.is_struct(kind):
        return _structs(array, name)
    if is_list(kind):
        return _lists(array, name)
    if types.is_temporal(kind):
        return _times(array)
    if not (is_text(kind) or is_bytes(kind) or types.is_primitive(kind) or types.is_decimal(kind)):
        problem = f"expected values that can be compared in column {name!r}, found {kind}"
        raise ContractError(f"deduplicate: {problem}. Derive a column of another type.", "preprocess")
    return list(map(_scalar, array.to_pylist()))


def joined(values: Sequence[bytes | None]) -> bytes:
    """Return one encoding for several values, given the encodings of these."""
    return b"".join(value or b"-" for value in values)


def _scalar(value: object) -> bytes | None:
    match value:
        case None:
            return None
        case bool():
            return b"b%d" % value
        case int():
            return b"i%d;" % value
        case float():
            return _number(value)
        case Decimal():
            return _decimal(value)
        case str():
            return _sized(b"s", value.encode("utf-8", "surrogatepass"))
        case bytes():
            return _sized(b"y", value)
    raise TypeError(type(value).__name__)  # unreachable: `encoded` checks the type


def _number(value: float) -> bytes:
    if value.is_integer():
        return b"i%d;" % int(value)
    if math.isnan(value):
        return b"fnan     "  # as long as any other
    return b"f" + struct.pack("<d", value)


def _decimal(value: Decimal) -> bytes:
    if value == value.to_integral_value():
        return b"i%d;" % int(value)
    if Decimal(float(value)) == value:
        return _number(float(value))
    return _sized(b"d", str(value.normalize()).encode())


def _sized(tag: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(content), content)


def _times(array: pa.Array) -> Encoded:
    """Encode dates and times as nanoseconds; a date is its midnight."""
    kind = array.type
    if types.is_date(kind):
        array, kind, tag = array.cast(pa.timestamp("ms")), pa.timestamp("ms"), b"t"
    elif types.is_timestamp(kind):
        tag = b"z" if kind.tz else b"t"
    else:
        tag = b"c" if types.is_time(kind) else b"e"
    factor = NANOSECONDS[kind.unit]
    numbers = array.cast(pa.int32() if types.is_time32(kind) else pa.int64()).to_pylist()
    return map_present(lambda number: b"%b%d;" % (tag, number * factor), numbers)


def _structs(array: pa.StructArray, name: str) -> Encoded:
    """Encode the fields that are not null, by name: a field that a file lacks is null in its rows."""
    fields = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    columns = {_sized(b"k", field.encode()): encoded(fields[field], name) for field in sorted(fields)}
    structs: Encoded = []
    for row, is_valid in enumerate(array.is_valid().to_pylist()):
        content = b""
        for key, values in columns.items():
            value = values[row]
            if value is not None:
                content += key + value
        structs.append(b"{%b}" % content if is_valid else None)
    return structs


def _lists(array: pa.Array, name: str) -> Encoded:
    values = encoded(array.flatten(), name)
    stops = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False))
    starts = [0, *stops[:-1].tolist()]
    lists: Encoded = []
    for is_valid, start, stop in zip(array.is_valid().to_pylist(), starts, stops.tolist(), strict=True):
        lists.append(b"[%b]" % joined(values[start:stop]) if is_valid else None)
    return lists


def _array(value: np.ndarray | None) -> bytes | None:
    if value is None:
        return None
    if value.dtype.kind == "f":
        value = value.astype("<f8") + 0.0  # -0.0 becomes 0.0
        value[np.isnan(value)] = np.nan
    shape = ",".join(map(str, value.shape)).encode()
    kind = value.dtype.kind.encode()
    if kind in b"iu" and not (value.dtype == np.uint64 and value.size and value.max() >= 2**63):
        kind, value = b"i", value.astype("<i8")
    return _sized(b"a%b;%b" % (kind, shape), value.tobytes())
