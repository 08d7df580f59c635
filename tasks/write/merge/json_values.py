"""Convert Arrow columns to JSON, for JSON Lines and for cells of tables without nested types.

Times become ISO 8601 with every digit that they have, durations whole numbers in their own unit, bytes Base64, and
decimals strings. NaN and the infinities are `NaN`, `Infinity` and `-Infinity`, as the readers of Python, pandas,
pyarrow, DuckDB and Spark accept them: JSON itself has no numbers for them.
"""

import base64
import math
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.rows.arrow_types import kinds_in, leaves
from overnight.tasks.rows.nulls import map_present
from overnight.tasks.rows.tensors import to_numpy

# orjson 3.13 writes time(0, 0, 0, 86399) as "00:00:00.86399", so times pass through to `_other`.
OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATETIME
NOT_FINITE = {
    "nan": orjson.Fragment(b"NaN"),
    "inf": orjson.Fragment(b"Infinity"),
    "-inf": orjson.Fragment(b"-Infinity"),
}
MICROSECONDS_END = 6  # the place of the nanoseconds behind the point of a time


def json_lines(table: pa.Table) -> Iterator[bytes]:
    """Yield each row as a JSON object and a line end."""
    columns = map(_json_ready, table.columns)
    for row in zip(*columns, strict=True):
        yield dump(dict(zip(table.column_names, row, strict=True))) + b"\n"


def json_texts(column: pa.ChunkedArray) -> pa.Array:
    """Return each value as JSON text; null stays null."""
    texts = map_present(lambda value: dump(value).decode(), _json_ready(column))
    return pa.array(texts, pa.string())


def _json_ready(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values as a list of Python values that `dump` writes with every digit."""
    if has_non_finite(column):
        return list(map(spelled, values(column)))
    return values(column)


def dump(value: Any) -> bytes:
    """Return a value as JSON, in UTF-8."""
    return orjson.dumps(value, default=_other, option=OPTIONS)


def spelled(value: Any) -> Any:
    """Return a value in which NaN and the infinities, also in lists and objects, are the words that `dump` writes."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, float | np.floating):
        return value if math.isfinite(value) else NOT_FINITE[str(float(value))]
    if isinstance(value, dict):
        return {name: spelled(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(spelled, value))
    return value


def has_non_finite(column: pa.ChunkedArray) -> bool:
    """Return True if NaN or an infinity is among the values of a column, also in lists and structs."""
    for chunk in column.chunks:
        for leaf in leaves(chunk):
            if types.is_floating(leaf.type) and not pc.all(pc.is_finite(leaf.cast(pa.float64())), min_count=0).as_py():
                return True
    return False


def values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values as a list of Python values; a time with nanoseconds becomes text.

    Fixed-size lists of numbers become NumPy arrays, for speed.
    """
    column = plain(column)
    inner = column.type.value_type if types.is_fixed_size_list(column.type) else pa.null()
    if types.is_primitive(inner) and not types.is_temporal(inner):
        rows = to_numpy(column)
        if rows.dtype != object and rows.ndim == 2:
            return list(np.ascontiguousarray(rows))
    return list(column.to_pylist())


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column with the nearest type whose values Python's own types represent, also inside lists and structs.

    Times become microseconds, or text if one has a finer fraction. Durations become whole numbers in their own unit.
    """
    if not any(map(_changes, kinds_in(column.type))):
        return column
    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return pa.chunked_array([_plain(whole)])


def _changes(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType) or types.is_dictionary(kind) or types.is_duration(kind):
        return True
    return (types.is_timestamp(kind) or types.is_time(kind)) and kind.unit != "us"


def _plain(array: pa.Array) -> pa.Array:
    kind = array.type
    if not any(map(_changes, kinds_in(kind))):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(array.storage)
    if types.is_dictionary(kind):
        return _plain(array.dictionary_decode())
    if types.is_duration(kind):
        return array.cast(pa.int64())
    if types.is_timestamp(kind) or types.is_time(kind):
        return _microseconds(array)
    if types.is_struct(kind):
        names = [field.name for field in kind]
        return pa.StructArray.from_arrays(list(map(_plain, array.flatten())), names, mask=array.is_null())
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    if types.is_map(kind):
        own = array.take(pa.array(range(len(array)), pa.int64()))  # a slice's keys would be those of the whole array
        return pa.MapArray.from_arrays(offsets, _plain(own.keys), _plain(own.items), mask=array.is_null())
    return pa.ListArray.from_arrays(offsets, _plain(pc.list_flatten(array)), mask=array.is_null())


def _microseconds(array: pa.Array) -> pa.Array:
    """Return times as microseconds if that represents them all, otherwise as text in ISO 8601."""
    kind = array.type
    coarse = pa.timestamp("us", kind.tz) if types.is_timestamp(kind) else pa.time64("us")
    if kind.unit != "ns":
        return array.cast(coarse)
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    nanoseconds = array.cast(pa.int64()).fill_null(0).to_numpy()
    microseconds, fractions = np.divmod(nanoseconds, 1000)  # rounds down, before 1970 as well
    moments = pa.array(microseconds, pa.int64(), mask=is_null).cast(coarse)
    if not fractions.any():
        return moments
    return pa.array(map(_with_nanoseconds, moments.to_pylist(), fractions.tolist()), pa.string())


def _with_nanoseconds(moment: datetime | time | None, nanoseconds: int) -> str | None:
    if moment is None:
        return None
    if not nanoseconds:
        return moment.isoformat()
    text = moment.isoformat(timespec="microseconds")
    end = text.index(".") + 1 + MICROSECONDS_END
    return f"{text[:end]}{nanoseconds:03d}{text[end:]}"


def _other(value: Any) -> Any:
    """Convert a value that orjson does not support."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, np.float16):
        return float(value)
    return value.tolist() if isinstance(value, np.ndarray) else str(value)
