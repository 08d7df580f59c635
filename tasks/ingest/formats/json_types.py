"""Arrow types for the values of a JSON key, and columns of them that represent every value unchanged.

A column of text holds any value: strings unchanged, all others as JSON. A number is an int, a float, or a `Decimal` if
64-bit types lack some of its digits (`json_text.py`).
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.column_types import MISFIT, Errors, fitting
from overnight.tasks.ingest.formats.csv_types import text_as
from overnight.tasks.ingest.formats.json_text import Constant
from overnight.tasks.rows.arrow_types import types_by_name, with_inner_fields
from overnight.tasks.rows.nulls import present

DEEPEST = 16
FAMILIES = {pa.float64(): float, pa.bool_(): bool}


def inferred_type(values: list[Any]) -> pa.DataType | None:
    """Return the Arrow type that holds all of the JSON values, or text if there is none; None if all are null."""
    actual = present(values)
    if not actual:
        return None
    kinds = set(map(type, actual))
    if len(set(map(_family, actual))) > 1 or Decimal in kinds:
        return pa.string()
    wide = pa.float64() if kinds & {float, Constant} else pa.uint64()
    for kind in (None, wide):
        try:
            return _storable(pa.array(actual, kind).type)
        except MISFIT:
            continue
    return pa.string()


def column_of(name: str, values: Sequence[Any], kind: pa.DataType | None) -> tuple[pa.Array, Errors]:
    """Return the values as a column of type `kind`, by default text, and the errors of misfits by position."""
    kind = kind or pa.string()
    column, misfits = fitting(values, lambda some: _strict(some, kind), kind)
    description = str(kind)
    if pa.types.is_string(kind):
        description = "a value with less nesting of lists and objects"
    errors: Errors = {}
    for row in misfits:
        reason = f"expected {description}, found {_shown(values[row])}; see source.types"
        errors[row] = RowError(f"column {name}: {reason}")
    return column, errors


def column_as(name: str, values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, Errors]:
    """Return a column of the type `kind` that the job sets: a value fits if it or its text does, such as "7"."""
    column, errors = column_of(name, values, kind)
    if not errors:
        return column, {}
    texts = list(map(_text_if_flat, values))
    column, misfits = text_as(pa.array(texts, pa.string()), kind)
    for row, text in enumerate(texts):
        if row not in misfits and text is not None:
            errors.pop(row, None)
    return column, errors


def text_of(value: Any) -> str | None:
    """Return a string or None unchanged, and any other value as JSON."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=_number).decode()


def _text_if_flat(value: Any) -> str | None:
    try:
        return text_of(value)
    except orjson.JSONEncodeError:
        return None


def _number(value: Any) -> orjson.Fragment:
    return orjson.Fragment(json.dumps(float(value)) if isinstance(value, Constant) else str(value))


def _shown(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)[:200]
    except (TypeError, RecursionError):  # a Decimal, or nested deep
        text = _text_if_flat([value])
        return text[1:-1][:200] if text else "lists or objects nested in more than 250 others"


def _family(value: Any) -> type:
    return float if type(value) in (int, Decimal, Constant) else type(value)


def _strict(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Convert like `pa.array`, but raise one of `MISFIT` if that would silently drop fractions or unknown keys."""
    if pa.types.is_string(kind):
        return pa.array(list(map(text_of, values)), pa.string())
    if pa.types.is_nested(kind):
        fits = _holds(kind, pa.array(values).type)
    elif Decimal in set(map(type, values)):
        fits = False
    elif pa.types.is_integer(kind):
        fits = all(value is None or (_family(value) is float and value % 1 == 0) for value in values)
    else:
        fits = set(map(_family, values)) <= {type(None), FAMILIES.get(kind)}
    if not fits:
        raise pa.ArrowInvalid(f"not {kind}")
    return pa.array(values, kind)


def _holds(kind: pa.DataType, second: pa.DataType) -> bool:
    if pa.types.is_null(second) or kind == second:
        return True
    if pa.types.is_list(kind) and pa.types.is_list(second):
        return _holds(kind.value_type, second.value_type)
    if pa.types.is_struct(kind) and pa.types.is_struct(second):
        kinds = types_by_name(kind)
        return all(field.name in kinds and _holds(kinds[field.name], field.type) for field in second)
    return bool(pa.types.is_floating(kind) and pa.types.is_integer(second))


def _storable(kind: pa.DataType, level: int = 0) -> pa.DataType:
    """Return the type with text for types that only nulls have; text for a type that is too deep or Parquet lacks."""
    is_unknown = pa.types.is_struct(kind) and not kind.num_fields
    if is_unknown or pa.types.is_decimal(kind) or (kind.num_fields and level >= DEEPEST):
        raise pa.ArrowInvalid(f"no type for {kind}")
    if pa.types.is_null(kind):
        return pa.string()
    return with_inner_fields(kind, lambda field: field.with_type(_storable(field.type, level + 1)))
