"""Prepare the values of rows for display: short texts, descriptions of bytes and arrays, and images as pixels.

A preview, the report of a run, `overnight diff` and notebooks show them.
"""

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
    """Return a column's values for display, as Python's values."""
    if column.type == TENSOR:
        return list(to_numpy(column))
    items = column.to_pylist()
    if not _is_pixels(column.type):
        return items
    arrays: list[Any] = []
    for item in items:
        try:
            arrays.append(None if item is None else np.asarray(item, np.uint8))
        except ValueError:  # rows of different lengths
            arrays.append(item)
    return arrays


def pixels(value: Any) -> np.ndarray | None:
    """Return the pixels of an image as uint8 H x W x 3. Return None if the value is not an image."""
    if isinstance(value, bytes):
        return readable_image(value) if value else None
    is_image = isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3
    return value if is_image and value.size else None


def text_of(value: Any) -> str:
    """Return a value as text of one line: `JPEG 640x480, 45 kB` for an image, `[0.12, -0.03, … 384]` for numbers."""
    match value:
        case None:
            return ""
        case bytes():
            return _bytes(value)
        case np.ndarray():
            if pixels(value) is not None:
                return f"image {value.shape[1]}x{value.shape[0]}"
            return f"{value.dtype} {' x '.join(map(str, value.shape))}"
        case float():
            return f"{value:.4g}"
        case list():
            return _list(value)
        case dict():
            text = json.dumps(value, default=text_of, ensure_ascii=False)
        case _:
            text = str(value)
    return " ".join(text.split())


def _list(items: list[Any]) -> str:
    if len(items) > SHORT_LIST and all(isinstance(item, int | float) for item in items):
        numbers = [f"{item:.2f}" if isinstance(item, float) else str(item) for item in items[:NUMBERS_SHOWN]]
        return f"[{', '.join(numbers)}, … {len(items)}]"
    return f"[{', '.join(map(text_of, items))}]"


def _bytes(content: bytes) -> str:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=[name for name in FORMATS if name in Image.OPEN]) as image:
            return f"{image.format} {image.width}x{image.height}, {_size(len(content))}"
    except Exception:  # Pillow raises many types for bytes that are not an image
        return _size(len(content))


def _size(count: int) -> str:
    if count < 1000:
        return f"{count:,} bytes"
    return f"{count / 1e3:,.0f} kB" if count < 10**6 else f"{count / 1e6:,.1f} MB"


def _is_pixels(kind: pa.DataType) -> bool:
    depth = 0
    while types.is_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
        depth += 1
    return depth == 3 and types.is_uint8(kind)
