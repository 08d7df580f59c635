"""Prompts from the values of a row: a text column, or a template with the names of columns.

All templates (`prompt`, `system`, `user`) have one grammar. `{column}` is the row's value in that
column. `{{` and `}}` are plain braces. Braces contain only column names, without formats,
attributes or indices. A value has the same text in every batch. Whole numbers stay whole, times
keep their zone and their nanoseconds, and lists and structs become JSON.
"""

import decimal
import json
import math
from collections.abc import Iterable
from string import Formatter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.infer.predictor import Batch
from overnight.tasks.rows.arrow_types import is_bytes, kinds_in, value_type
from overnight.tasks.rows.tensors import TENSOR, to_numpy

IMAGE_DIMENSIONS = 3


def texts(values: Iterable[object], column: str) -> list[str]:
    """Return `values` as strings. Raise `RowError`, which names `column`, for any other value."""
    strings = []
    for value in values:
        if not isinstance(value, str):
            kind = "no value" if value is None else f"{type(value).__name__} {value!r:.80}"
            raise RowError(f"{column}: expected a text, found {kind}.")
        strings.append(str(value))
    return strings


def placeholders(template: str, setting: str = "prompt") -> list[str]:
    """Return the columns that `template` names, each once. A `ValueError` names `setting`."""
    columns: dict[str, None] = {}
    try:
        for _, name, layout, conversion in Formatter().parse(template):
            if name is None:
                continue
            if not name or layout or conversion or set(name) & set(".["):
                raise ValueError(f"found {{{name}}}")
            columns[name] = None
    except ValueError as error:
        raise ValueError(
            f"{setting}: expected column names in braces, {error}; write {{{{ and }}}} for plain braces"
        ) from None
    return list(columns)


def fixed_text_after_columns(templates: Iterable[str]) -> int:
    """Return the characters of fixed text behind the first column in the templates, which follow each other."""
    characters, has_column = 0, False
    for template in templates:
        for text, name, _, _ in Formatter().parse(template):
            characters += len(text) if has_column else 0
            has_column = has_column or name is not None
    return characters


def filled(template: str, batch: Batch, setting: str = "prompt") -> list[str]:
    """Return the template with the values of each row. A row without one of them is a `RowError`."""
    columns = placeholders(template, setting)
    if not columns:
        return [template.format()] * len(next(iter(batch.values())))
    prompts = []
    for row in zip(*(batch[column].tolist() for column in columns), strict=True):
        values = dict(zip(columns, row, strict=True))
        for column, value in values.items():
            if value is None:
                raise RowError(f"{column}: expected a value for the {setting}, found none.")
        prompts.append(template.format(**values))
    return prompts


def as_objects(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column's values as an object array: NumPy would make floats of whole numbers beside null."""
    array = np.empty(len(column), object)
    for row, value in enumerate(column.to_pylist()):
        array[row] = value
    return array


def as_texts(column: pa.ChunkedArray, name: str = "the column") -> np.ndarray:
    """Return a column's values as an object array of texts, with None for null and NaN."""
    refuse_bytes(name, column)
    array = np.empty(len(column), object)
    for row, value in enumerate(_values(column)):
        is_missing = value is None or (isinstance(value, float) and math.isnan(value))
        array[row] = None if is_missing else _text(value)
    return array


def refuse_bytes(name: str, column: pa.ChunkedArray) -> None:
    """Raise `ContractError` if the type of the column `name` has bytes, or its values are images."""
    if column.type == TENSOR:
        shapes = pc.list_value_length(pc.struct_field(column, "shape"))
        is_long = (pc.max(shapes).as_py() or 0) >= IMAGE_DIMENSIONS
        kind = "images"
    else:
        is_long = any(is_bytes(value_type(kind)) for kind in kinds_in(value_type(column.type)))
        kind = f"bytes ({column.type})"
    if is_long:
        raise ContractError(
            f"{name}: expected a column of text or numbers for the prompt, found {kind}, which would be megabytes of "
            "text. Leave it out of the prompt, or make a text of it in preprocess. For images, kind: image_captioning "
            "has a prompt beside the image.",
            "infer",
        )


def _values(column: pa.ChunkedArray) -> Iterable[Any]:
    if column.type == TENSOR:
        return (None if cell is None else cell.tolist() for cell in to_numpy(column))
    values = column.to_pylist()
    if types.is_floating(column.type) and column.type != pa.float64():  # 0.1, not 0.10000000149011612
        return (value and float(str(np.float32(value))) for value in values)
    return values


def _text(value: Any) -> str:
    if isinstance(value, list | dict | tuple):
        return json.dumps(_in_json(value), ensure_ascii=False)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return str(value)


def _in_json(value: Any) -> Any:
    """Return `value` without nested values that JSON cannot represent."""
    if isinstance(value, dict):
        return {str(key): _in_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_in_json, value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _text(value)
