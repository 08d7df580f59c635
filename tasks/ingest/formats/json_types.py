"""Arrow types for the values of a JSON key, and columns of them that represent every value unchanged.

A column of text holds any value: strings unchanged, all others as JSON. A number is an int, a float, or a `Decimal` if
64-bit types lack some of its digits (`tasks/ingest/formats/json_text.py`).
"""

import json
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from overnight.tasks.ingest.formats.csv_types import fitting
from overnight.tasks.ingest.formats.json_text import Constant

DEEPEST = 16
MISFIT = (pa.ArrowException, OverflowError, orjson.JSONEncodeError)


def inferred_type(values: list[Any]) -> pa.DataType | None:
    """Return the Arrow type that holds all of the JSON values; None if all are null.

    Return text if the values are of several kinds, such as numbers and strings, or if one is a `Decimal`. Return text
    also if no Arrow type holds all values of their kind.
    """
    present = [value for value in values if value is not None]
    if not present:
        return None
    if len(set(map(_family, present))) > 1 or any(isinstance(value, Decimal) for value in present):
        return pa.string()
    wide = pa.float64() if any(isinstance(value, float) for value in present) else pa.uint64()
    for kind in (None, wide):
        try:
            return _storable(pa.array(present, kind).type)
        except MISFIT:
            continue
    return pa.string()


def column_of(values: dict[int, Any], kind: pa.DataType | None) -> tuple[pa.Array, dict[int, str]]:
    """Return the values as a column of type `kind`, and the reasons why some do not fit, as sentences.

    The keys of `values`, such as the numbers of rows, are the keys of the reasons too. A value that does not fit is
    null in the column. If `kind` is None, the column has text, and values other than strings as JSON.
    """
    try:
        return _strict(list(values.values()), kind), {}
    except MISFIT:
        misfits, cells = {}, []
    for i, value in values.items():
        try:
            cells.append(_strict([value], kind))
        except MISFIT:
            misfits[i] = f"expected {_expected(kind)}, found {_shown(value)}; see source.types"
            cells.append(pa.nulls(1, kind or pa.string()))
    return pa.concat_arrays(cells), misfits


def column_as(values: dict[int, Any], kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Return the values as a column of type `kind`, which the job sets, and the reasons why some do not fit.

    A value fits if it or its text does: the string "7" becomes a number. A value that does not fit is null. The keys of
    `values`, such as the numbers of rows, are the keys of the reasons too.
    """
    column, misfits = column_of(values, kind)
    if not misfits:
        return column, {}
    texts = [_text_if_flat(value) for value in values.values()]
    column, places = fitting(pa.array(texts, pa.string()), kind)
    failed = {i for place, i in enumerate(values) if place in places or texts[place] is None}
    return column, {i: reason for i, reason in misfits.items() if i in failed}


def text_of(value: Any) -> str | None:
    """Return a string or None unchanged, and any other value as JSON.

    Raise `orjson.JSONEncodeError` if the value is nested too deep.
    """
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


def _expected(kind: pa.DataType | None) -> str:
    return str(kind) if kind and not pa.types.is_string(kind) else "a value with less nesting of lists and objects"


def _shown(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)[:200]
    except (TypeError, RecursionError):  # a Decimal, or nested deep
        text = _text_if_flat([value])
        return text[1:-1][:200] if text else "lists or objects nested in more than 250 others"


def _family(value: Any) -> type:
    return float if type(value) in (int, Decimal, Constant) else type(value)


def _strict(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Convert like `pa.array`, but raise one of `MISFIT` if that would silently drop fractions or unknown keys."""
    if kind is None or pa.types.is_string(kind):
        return pa.array([text_of(value) for value in values], pa.string())
    if pa.types.is_nested(kind):
        fits = _holds(kind, pa.array(values).type)
    elif any(isinstance(value, Decimal) for value in values):
        fits = False
    elif pa.types.is_integer(kind):
        fits = all(value is None or (_family(value) is float and value % 1 == 0) for value in values)
    else:
        families = {pa.float64(): float, pa.bool_(): bool}
        fits = set(map(_family, values)) <= {type(None), families.get(kind)}
    if not fits:
        raise pa.ArrowInvalid(f"not {kind}")
    return pa.array(values, kind)


def _holds(kind: pa.DataType, found: pa.DataType) -> bool:
    if pa.types.is_null(found) or kind == found:
        return True
    if pa.types.is_list(kind) and pa.types.is_list(found):
        return _holds(kind.value_type, found.value_type)
    if pa.types.is_struct(kind) and pa.types.is_struct(found):
        known = {field.name: field.type for field in kind}
        return all(field.name in known and _holds(known[field.name], field.type) for field in found)
    return bool(pa.types.is_floating(kind) and pa.types.is_integer(found))


def _storable(kind: pa.DataType) -> pa.DataType:
    """Return the type with text in the place of types that only nulls have; text for a type that Parquet lacks."""
    return _without_nulls(kind) if not _is_deeper(kind, DEEPEST) and not _is_unknown(kind) else pa.string()


def _without_nulls(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_nulls(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_nulls(field.type)) for field in kind])
    return kind


def _is_unknown(kind: pa.DataType) -> bool:
    """Return True if the type contains an object without a known key, or a number of more digits than 64 bits have."""
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return (pa.types.is_struct(kind) and not inner) or pa.types.is_decimal(kind) or any(map(_is_unknown, inner))


def _is_deeper(kind: pa.DataType, levels: int) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return bool(inner) and (not levels or any(_is_deeper(found, levels - 1) for found in inner))
