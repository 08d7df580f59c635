"""The columns of a batch as inputs of a transformers pipeline, one per row.

Texts, numbers, lists and structs become Python's values. An image is uint8 H x W x 3 and becomes an image of Pillow.
Sound is float32 1 x samples and becomes an array of samples. Where an image or sound is expected, a pipeline opens a
text as a path or an address. So this file refuses such a row.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from overnight.tasks.errors import RowError
from overnight.tasks.infer.huggingface.image_inputs import require_image
from overnight.tasks.infer.predictor import Batch

MEDIA = frozenset({"image", "images", "audio"})  # names of inputs that are not texts
WORDS = "word_boxes"  # pairs of a word and its box, in Arrow structs

Input = Any  # the pipeline's input for a row


def inputs_of(batch: Batch, columns: str | Mapping[str, str], modality: str) -> list[Input]:
    """Return the pipeline's input for each row of `batch`: the value of a column, or a dict of values.

    `columns` is the name of the only column, or maps each name in the dict to its column. `modality` is the kind of the
    task's input, as transformers names it: text, image, audio or multimodal. Raise `RowError` for a row without a
    value, or with a value of another kind, such as a path in place of an image.
    """
    if isinstance(columns, str):
        read = value if modality == "text" else media
        return [read(one, columns) for one in batch[columns]]
    rows = []
    for place in range(len(batch["row_id"])):
        row = {}
        for name, column in columns.items():
            if name in MEDIA or modality in ("image", "audio"):
                row[name] = media(batch[column][place], column)
            elif modality == "text" or name == WORDS:
                row[name] = value(batch[column][place], column)
            else:
                row[name] = _texts(batch[column][place], column)
        if WORDS in row:
            row[WORDS] = [tuple(word.values()) for word in row[WORDS]]
        rows.append(row)
    return rows


def value(found: Any, column: str) -> Any:
    """Return `found`, the value of a row. Raise `RowError`, which names `column`, if it is None."""
    if found is None:
        raise RowError(f"{column}: expected a value for the pipeline, found none.")
    return found


def _texts(found: Any, column: str) -> Any:
    """Return a text or a list of texts. Raise `RowError` for messages: they can name files and addresses."""
    if isinstance(found, str) or (isinstance(found, list) and all(isinstance(one, str) for one in found)):
        return found
    kind = "none" if found is None else f"a {type(found).__name__} of other values"
    raise RowError(f"{column}: expected a text or a list of texts for the pipeline, found {kind}.")


def media(found: Any, column: str) -> Any:
    """Return an image array as an image of Pillow, and an array of sound samples with one dimension.

    `found` is uint8 H x W x 3, or float samples of one channel. Raise `RowError`, which names `column`, for any other
    value.
    """
    from PIL import Image

    if not isinstance(found, np.ndarray):
        kind = "no value" if found is None else f"a {type(found).__name__}"
        raise RowError(
            f"{column}: expected an image of decode_image, or sound of decode_audio, found {kind}. Overnight opens no "
            "file and no address that a row names."
        )
    if found.dtype.kind != "f":
        return Image.fromarray(require_image(found))
    if found.ndim != 1 and found.shape[0] != 1:
        raise RowError(f"{column}: expected sound of one channel, found shape {' x '.join(map(str, found.shape))}.")
    return found.reshape(-1)


def alike(rows: Sequence[Input], arguments: Sequence[Mapping[str, Any]]) -> Iterator[list[int]]:
    """Yield groups of rows, as their places in `rows`, that may share a forward pass.

    `arguments` has for each row its own arguments of the pipeline's call. The rows of a group have the same arguments,
    and images or sound of one size.
    """
    groups: dict[str, list[int]] = {}
    for place, (row, own) in enumerate(zip(rows, arguments, strict=True)):
        size = getattr(row, "shape", None) or getattr(row, "size", None)
        groups.setdefault(json.dumps([size, own], default=str), []).append(place)
    yield from groups.values()
