"""Prepare the values of a preview for display: short texts, descriptions of bytes and arrays, and images as pixels."""

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from overnight.tasks.preprocess.in_process import FORMATS, readable_image
from overnight.tasks.rows.tensors import TENSOR, to_numpy

NUMBERS_SHOWN = 2  # the first numbers of a long list
SHORT_LIST = 6  # the longest list of numbers that is shown in full


def values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values for display, as Python's values.

    Tensors become arrays. So do lists of uint8 that are nested three deep, such as pixels.
    """
    if column.type == TENSOR:
        return list(to_numpy(column))
    found = column.to_pylist()
    return [None if value is None else _array(value) for value in found] if _is_pixels(column.type) else found


def pixels(value: Any) -> np.ndarray | None:
    """Return the pixels of an image as uint8 H x W x 3. Return None if the value is not an image.

    The value may be the bytes of an image file, or an array of that type and shape.
    """
    if isinstance(value, bytes):
        return readable_image(value) if value else None
    is_image = isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3
    return value if is_image and value.size else None


def text_of(value: Any) -> str:
    """Return a value as text of one line: `JPEG 640x480, 45 kB` for an image, `[0.12, -0.03, … 384]` for numbers."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, np.ndarray):
        return f"image {value.shape[1]}x{value.shape[0]}" if pixels(value) is not None else _shape(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return _list(value)
    text = json.dumps(value, default=text_of, ensure_ascii=False) if isinstance(value, dict) else str(value)
    return " ".join(text.split())


def _list(value: list[Any]) -> str:
    if len(value) > SHORT_LIST and all(isinstance(one, int | float) for one in value):
        return f"[{', '.join(_number(one) for one in value[:NUMBERS_SHOWN])}, … {len(value)}]"
    return f"[{', '.join(map(text_of, value))}]"


def _number(value: float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _bytes(value: bytes) -> str:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(value), formats=[name for name in FORMATS if name in Image.OPEN]) as image:
            return f"{image.format} {image.width}x{image.height}, {_size(len(value))}"
    except Exception:  # Pillow raises many types for bytes that are not an image
        return _size(len(value))


def _size(count: int) -> str:
    if count < 1000:
        return f"{count:,} bytes"
    return f"{count / 1e3:,.0f} kB" if count < 10**6 else f"{count / 1e6:,.1f} MB"


def _shape(value: np.ndarray) -> str:
    return f"{value.dtype} {' x '.join(map(str, value.shape))}"


def _array(value: list[Any]) -> Any:
    try:
        return np.asarray(value, np.uint8)
    except ValueError:  # rows of different lengths
        return value


def _is_pixels(kind: pa.DataType) -> bool:
    depth = 0
    while types.is_list(kind) or types.is_fixed_size_list(kind):
        kind, depth = kind.value_type, depth + 1
    return depth == 3 and types.is_uint8(kind)
