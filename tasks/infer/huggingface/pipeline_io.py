"""The columns of a batch as inputs of a transformers pipeline, one per row, and its results as typed columns.

Where an image or sound is expected, a pipeline opens a text as a path or an address. So this file refuses such a row.
Out: if the results are dicts, a column per key; otherwise the column `output`. The types in `TYPES` do not depend on
the rows, so that an empty list has the same type in every batch, and a missing field is null.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import InvalidValues, RowError
from overnight.tasks.infer.huggingface.media import channel, require_image
from overnight.tasks.infer.predictor import Batch
from overnight.tasks.rows.plain_values import arrow_column, plain_column
from overnight.tasks.rows.tensors import Column
from overnight.tasks.rows.unstorable import PLAIN

MEDIA = frozenset({"image", "images", "audio"})  # names of inputs that are not texts
WORDS = "word_boxes"  # pairs of a word and its box, in Arrow structs
OUTPUT = "output"

Input = Any  # the pipeline's input for a row

_BOX = pa.struct(dict.fromkeys(("xmin", "ymin", "xmax", "ymax"), pa.int64()))
_FOUND = [("score", pa.float64()), ("label", pa.string())]
_PLACE = [("word", pa.string()), ("start", pa.int64()), ("end", pa.int64())]


def _structs(*fields: tuple[str, pa.DataType]) -> dict[str, pa.DataType]:
    return {OUTPUT: pa.list_(pa.struct(fields))}


# The columns of tasks whose results are empty, or lack fields, for some rows.
TYPES: dict[str, dict[str, pa.DataType]] = {
    "document-question-answering": _structs(
        ("score", pa.float64()), ("answer", pa.string()), ("start", pa.int64()), ("end", pa.int64())
    ),
    "fill-mask": _structs(
        ("score", pa.float64()), ("token", pa.int64()), ("token_str", pa.string()), ("sequence", pa.string())
    ),
    "image-segmentation": _structs(*_FOUND, ("mask", pa.binary())),
    "object-detection": _structs(*_FOUND, ("box", _BOX)),
    "table-question-answering": {
        "answer": pa.string(),
        "coordinates": pa.list_(pa.list_(pa.int64())),
        "cells": pa.list_(pa.string()),
        "aggregator": pa.string(),
    },
    "token-classification": _structs(("entity", pa.string()), ("score", pa.float32()), ("index", pa.int64()), *_PLACE),
    "zero-shot-object-detection": _structs(*_FOUND, ("box", _BOX)),
}
GROUPED = _structs(("entity_group", pa.string()), ("score", pa.float32()), *_PLACE)


def declared(task: str, arguments: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Return the Arrow types of the columns of a task called with `arguments`; empty if only the results show them."""
    if task == "token-classification" and str(arguments.get("aggregation_strategy", "none")).lower() != "none":
        return GROUPED
    return TYPES.get(task, {})


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


def columns_of(results: Sequence[Any], types: Mapping[str, pa.DataType]) -> dict[str, Column]:
    """Return column name -> values for the results of a pipeline, one per row, with `types` or their own types."""
    if not all(isinstance(result, Mapping) for result in results):
        return {OUTPUT: _column(OUTPUT, results, types.get(OUTPUT))}
    names = dict.fromkeys(types)
    names.pop(OUTPUT, None)
    for result in results:
        names.update(dict.fromkeys(result))
    columns = {}
    for name in names:
        values = [row.get(name) for row in results]
        columns[str(name)] = _column(str(name), values, types.get(name))
    return columns


def _column(name: str, values: Sequence[Any], declared_type: pa.DataType | None) -> pa.Array:
    """Return the values as Arrow, by the table of accepted values. Other fields than the declared ones stay."""
    plain = plain_column(name, list(map(_exact, values)))
    if any(isinstance(value, np.ndarray) for value in plain):
        return arrow_column(name, plain)
    try:
        array = pa.array(plain)  # of NumPy's numbers, it keeps the type
        if declared_type is None or array.type == declared_type:
            return array
        schemas = (pa.schema([(name, declared_type)]), pa.schema([(name, array.type)]))
        return pa.array(plain, pa.unify_schemas(schemas, promote_options="permissive").field(0).type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidValues(f"{name}: expected values of one type, found others ({error}).") from error


def _exact(value: Any) -> Any:
    """Return a result whose numbers keep their type; float16 and bfloat16 in tensors become float32."""
    if hasattr(value, "detach"):
        is_narrow = value.dtype.itemsize == 2 and value.is_floating_point()
        value = (value.float() if is_narrow else value).detach().cpu().numpy()
    if isinstance(value, np.ndarray) and not value.ndim:
        return value[()]
    if isinstance(value, Mapping):
        return {name: _inside(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return _entries(value)
    return value


def _inside(value: Any) -> Any:
    """Return a value inside another one. Arrow takes arrays of one dimension there, and lists of them."""
    value = _exact(value)
    return _entries(value) if isinstance(value, np.ndarray) and value.ndim > 1 else value


def _entries(values: Iterable[Any]) -> list[Any]:
    entries = list(values)
    if set(map(type, entries)) <= PLAIN:  # vectors of tokens are long
        return entries
    return list(map(_inside, entries))
