"""The results of a transformers pipeline as typed columns.

Out: if the results are dicts, a column per key; otherwise the column `output`. Numbers keep their type: a Python float
is float64, NumPy's float32 is float32. Images become PNG bytes, and arrays become lists. The types in `TYPES` do not
depend on the rows, so that an empty list has the same type in every batch, and a missing field is null.
"""

import io
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from overnight.tasks.errors import InvalidValues
from overnight.tasks.rows.tensors import Column

OUTPUT = "output"
PLAIN = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary()}

_BOX = pa.struct([(side, pa.int64()) for side in ("xmin", "ymin", "xmax", "ymax")])
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


def columns_of(results: Sequence[Any], types: Mapping[str, pa.DataType]) -> dict[str, Column]:
    """Return column name -> values for the results of a pipeline, one per row, with `types` or their own types."""
    if not all(isinstance(result, Mapping) for result in results):
        return {OUTPUT: _column(OUTPUT, results, types.get(OUTPUT))}
    names = dict.fromkeys(name for name in types if name != OUTPUT)
    for result in results:
        names.update(dict.fromkeys(result))
    columns = {}
    for name in names:
        values = [row.get(name) for row in results]
        columns[str(name)] = _column(str(name), values, types.get(name))
    return columns


def _column(name: str, values: Sequence[Any], kind: pa.DataType | None) -> Column:
    if kind is None:
        arrays = [_array(value) for value in values if value is not None]
        if arrays and all(array is not None and array.ndim for array in arrays):
            return list(map(_array, values))
    items, inner = _plain_values(name, values)
    return pa.array(items, inner if kind is None else _merged(name, kind, inner))


def _plain(value: Any) -> tuple[Any, pa.DataType]:
    """Return a value that Arrow takes, and its type."""
    if value is None:
        return None, pa.null()
    if type(value) in PLAIN:
        return value, PLAIN[type(value)]
    if isinstance(value, Enum):
        return _plain(value.value)
    array = _array(value)
    if array is not None:
        if array.dtype.kind not in "biuf":
            return _plain(array.tolist())
        kind = pa.from_numpy_dtype(array.dtype)
        for _ in range(array.ndim):
            kind = pa.list_(kind)
        return array.tolist(), kind
    if isinstance(value, Mapping):
        fields, types = {}, {}
        for name, field in value.items():
            fields[str(name)], types[str(name)] = _plain(field)
        return fields, pa.struct(list(types.items()))
    if isinstance(value, list | tuple):
        items, inner = _plain_values("a list", value)
        return items, pa.list_(inner)
    if isinstance(value, Image.Image):
        file = io.BytesIO()
        value.save(file, "PNG")
        return file.getvalue(), pa.binary()
    raise InvalidValues(f"expected texts, numbers, lists, dicts, arrays or images, found a {type(value).__name__}.")


def _plain_values(name: str, values: Sequence[Any]) -> tuple[list[Any], pa.DataType]:
    """Return values that Arrow takes, and the one type of all."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= PLAIN.keys():
        return list(values), PLAIN[kinds.pop()]
    items, common_kind = [], pa.null()
    for value in values:
        item, kind = _plain(value)
        common_kind = _merged(name, common_kind, kind)
        items.append(item)
    return items, common_kind


def _merged(name: str, first: pa.DataType, second: pa.DataType) -> pa.DataType:
    if first == second:
        return first
    schemas = [pa.schema([("value", kind)]) for kind in (first, second)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        raise InvalidValues(f"{name}: expected values of one type, found {first} and {second}.") from None


def _array(value: Any) -> np.ndarray | None:
    """Return an array or a tensor as an array, with float16 as float32; None for another value."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        is_narrow = tensor.dtype.itemsize == 2 and tensor.is_floating_point()
        value = (tensor.float() if is_narrow else tensor).numpy()
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
