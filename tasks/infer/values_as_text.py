"""A column's values as texts for a prompt.

A value has the same text in every batch. Whole numbers stay whole, times keep their zone and their nanoseconds, and
lists and structs become JSON. Null and NaN are missing values, so they have no text. Bytes and images are not text,
and are refused by their type.
"""

import decimal
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.tensors import TENSOR, to_numpy

IMAGE_DIMENSIONS = 3


def as_texts(column: pa.ChunkedArray, name: str = "the column") -> np.ndarray:
    """Return the values of the column `name` as an object array of texts, with None for null and NaN.

    Lists and structs become JSON. Raise `ContractError` for bytes and images.
    """
    refuse_bytes(name, column)
    texts = np.empty(len(column), object)
    texts[:] = [None if _is_none(value) else _text(value) for value in _values(column)]
    return texts


def refuse_bytes(name: str, column: pa.ChunkedArray) -> None:
    """Raise `ContractError` if the values of the column `name` are or contain bytes, or are images, by their type."""
    if column.type == TENSOR:
        shapes = pc.list_value_length(pc.struct_field(column, "shape"))
        is_bytes = (pc.max(shapes).as_py() or 0) >= IMAGE_DIMENSIONS
    else:
        is_bytes = _has_bytes(column.type)
    if is_bytes:
        what = "images" if column.type == TENSOR else f"bytes ({column.type})"
        raise ContractError(
            f"{name}: expected a column of text or numbers for the prompt, found {what}, which would be megabytes of "
            "text. Leave it out of the prompt, or make a text of it in preprocess. For images, kind: image_captioning "
            "has a prompt beside the image.",
            "infer",
        )


def _has_bytes(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        return _has_bytes(kind.value_type)
    if types.is_nested(kind):
        return any(_has_bytes(kind.field(place).type) for place in range(kind.num_fields))
    is_view = types.is_binary_view(kind)
    return is_view or types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


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
