"""The columns of a batch as inputs of a transformers pipeline, one per row.

Where an image or sound is expected, a pipeline opens a text as a path or an address. So this file refuses such a row.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from overnight.tasks.errors import RowError
from overnight.tasks.infer.huggingface.image_inputs import require_image
from overnight.tasks.infer.huggingface.sound_inputs import channel
from overnight.tasks.infer.predictor import Batch

MEDIA = frozenset({"image", "images", "audio"})  # names of inputs that are not texts
WORDS = "word_boxes"  # pairs of a word and its box, in Arrow structs

Input = Any  # the pipeline's input for a row


def inputs_of(batch: Batch, columns: str | Mapping[str, str], modality: str) -> list[Input]:
    """Return the pipeline's input for each row: the value of the column, or a dict of values by their names."""
    if isinstance(columns, str):
        read = required if modality == "text" else _media
        return [read(value, columns) for value in batch[columns]]
    rows: list[Input] = [{} for _ in batch["row_id"]]
    for name, column in columns.items():
        if name in MEDIA or modality in ("image", "audio"):
            read = _media
        elif name == WORDS:
            read = _words
        else:
            read = required if modality == "text" else _texts
        for row, value in zip(rows, batch[column], strict=True):
            row[name] = read(value, column)
    return rows


def required(value: Any, column: str) -> Any:
    """Return `value`. Raise `RowError`, which names `column`, if it is None."""
    if value is None:
        raise RowError(f"{column}: expected a value for the pipeline, found none.")
    return value


def _words(value: Any, column: str) -> list[tuple[Any, ...]]:
    return [tuple(word.values()) for word in required(value, column)]


def _texts(value: Any, column: str) -> Any:
    """Return a text or a list of texts. Raise `RowError` for messages: they can name files and addresses."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return value
    kind = "none" if value is None else f"a {type(value).__name__} of other values"
    raise RowError(f"{column}: expected a text or a list of texts for the pipeline, found {kind}.")


def _media(value: Any, column: str) -> Any:
    """Return uint8 H x W x 3 as an image of Pillow, and float samples of one channel with one dimension."""
    from PIL import Image

    if not isinstance(value, np.ndarray):
        kind = "no value" if value is None else f"a {type(value).__name__}"
        raise RowError(
            f"{column}: expected an image of decode_image, or sound of decode_audio, found {kind}. Overnight opens no "
            "file and no address that a row names."
        )
    if value.dtype.kind == "f":
        return channel(value, column)
    return Image.fromarray(require_image(value))


def groups(rows: Sequence[Input], arguments: Sequence[Mapping[str, Any]]) -> Iterator[list[int]]:
    """Yield the numbers of rows that may share a forward pass: the same arguments, images or sound of one size."""
    numbers: dict[str, list[int]] = {}
    for number, (row, values) in enumerate(zip(rows, arguments, strict=True)):
        size = getattr(row, "shape", None) or getattr(row, "size", None)
        numbers.setdefault(json.dumps([size, values], default=str), []).append(number)
    yield from numbers.values()
