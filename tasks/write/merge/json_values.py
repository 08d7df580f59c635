"""Convert Arrow columns to JSON, for JSON Lines and for cells of tables without nested types.

Times become ISO 8601, durations whole numbers in their own unit, bytes Base64, and decimals strings. NaN and the
infinities become null, because JSON has no number for them.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.rows.tensors import to_numpy

OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def json_lines(table: pa.Table) -> Iterator[bytes]:
    """Yield each row as a JSON object and a line end."""
    columns = [values(column) for column in table.columns]
    for row in zip(*columns, strict=True):
        yield dump(dict(zip(table.column_names, row, strict=True))) + b"\n"


def json_texts(column: pa.ChunkedArray) -> pa.Array:
    """Return each value as JSON text; null stays null."""
    return pa.array([None if value is None else dump(value).decode() for value in values(column)], pa.string())


def dump(value: Any) -> bytes:
    """Return a value as JSON, in UTF-8."""
    return orjson.dumps(value, default=_other, option=OPTIONS)


def values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values as a list of Python values.

    Fixed-size lists of numbers become NumPy arrays, for speed.
    """
    column = plain(column)
    kind = column.type
    if (
        types.is_fixed_size_list(kind)
        and types.is_primitive(kind.value_type)
        and not types.is_temporal(kind.value_type)
    ):
        rows = to_numpy(column)
        return list(np.ascontiguousarray(rows)) if rows.dtype != object and rows.ndim == 2 else column.to_pylist()
    return list(column.to_pylist())


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column with the nearest type whose values Python's own types represent.

    Times are cut off to microseconds, durations become whole numbers in their own unit, and other types stay.
    """
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type))
    if types.is_dictionary(kind):
        return plain(column.cast(kind.value_type))
    if types.is_timestamp(kind):
        return pc.cast(column, options=pc.CastOptions(pa.timestamp("us", kind.tz), allow_time_truncate=True))
    if types.is_time(kind):
        return pc.cast(column, options=pc.CastOptions(pa.time64("us"), allow_time_truncate=True))
    if types.is_duration(kind):
        return column.cast(pa.int64())
    return column


def _other(value: Any) -> Any:
    """Convert a value that orjson does not support."""
    conversions: dict[type, Callable[[Any], Any]] = {
        bytes: lambda found: base64.b64encode(found).decode(),
        np.float16: float,
        np.ndarray: np.ndarray.tolist,
    }
    return conversions.get(type(value), str)(value)
