"""A column's values as texts for a prompt.

A value has the same text in every batch. Whole numbers stay whole, times keep their zone and their nanoseconds, lists
and structs become JSON, and bytes become Base64. Null and NaN are missing values, so they have no text.
"""

import base64
import decimal
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from overnight.tasks.rows.tensors import TENSOR, to_numpy


def as_texts(column: pa.ChunkedArray) -> np.ndarray:
    """Return the values of a column as an object array of texts, with None for null and NaN.

    Lists and structs become JSON, and bytes become Base64.
    """
    texts = np.empty(len(column), object)
    texts[:] = [None if _is_none(value) else _text(value) for value in _values(column)]
    return texts


def _values(column: pa.ChunkedArray) -> list[Any]:
    if column.type == TENSOR:
        return [cell if cell is None else cell.tolist() for cell in to_numpy(column)]
    values = list(column.to_pylist())
    if types.is_floating(column.type) and column.type != pa.float64():  # 0.1, not 0.10000000149011612
        return [value if value is None else float(str(np.float32(value))) for value in values]
    return values


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _text(value: Any) -> str:
    if isinstance(value, list | dict | tuple):
        return json.dumps(_in_json(value), ensure_ascii=False)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return format(value, "f") if isinstance(value, decimal.Decimal) else str(value)


def _in_json(value: Any) -> Any:
    """Return `value` without nested values that JSON cannot represent."""
    if isinstance(value, dict):
        return {str(key): _in_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else _text(value)
