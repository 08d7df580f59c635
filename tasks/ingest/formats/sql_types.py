"""Makes columns of the values of a database driver, in Arrow types that are inferred once."""

import datetime
import decimal
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.column_types import MISFIT, Errors, fitting
from overnight.tasks.rows.arrow_types import types_by_name
from overnight.tasks.rows.nulls import map_present, present


@dataclass(frozen=True)
class UnreadValue:
    """A value that Python lacks, such as the date `infinity`, as the database writes it in `text`."""

    text: str


def inferred_type(values: Sequence[Any]) -> pa.DataType:
    """Return the Arrow type that holds all the values; text if there is no such type, or if all values are None."""
    plain = [_plain(value) for value in values if value is not None and not isinstance(value, UnreadValue)]
    if not plain:
        return pa.string()
    if all(isinstance(value, decimal.Decimal) for value in plain):
        scale = 0
        for value in filter(decimal.Decimal.is_finite, plain):
            scale = max(scale, -int(value.as_tuple().exponent))
        return pa.decimal128(38, scale)
    try:
        return pa.array(plain).type
    except MISFIT:
        return pa.string()


def column_of(name: str, values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, Errors]:
    """Return the values as a column of type `kind`, and the errors of values that do not fit, by position."""
    plain = _text if kind == pa.string() else _plain
    column, misfits = fitting(values, lambda some: _strict(list(map(plain, some)), kind), kind)
    errors: Errors = {}
    for row in misfits:
        value = values[row]
        excerpt = value.text if isinstance(value, UnreadValue) else f"{_plain(value)!r:.200}"
        errors[row] = RowError(f"column {name}: expected {kind}, found {excerpt}; see source.types")
    return column, errors


def _strict(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert like `pa.array`, but raise one of `MISFIT` if that would silently drop fractions, and parse texts."""
    actual = present(values)
    if actual and all(isinstance(value, str) for value in actual) and not pa.types.is_binary(kind):
        return pa.array(values, pa.string()).cast(kind)
    if pa.types.is_integer(kind) and any(value != int(value) for value in actual):
        raise pa.ArrowInvalid(f"not {kind}")
    if "struct<" in str(kind) and not all(_has_fields(value, kind) for value in actual):
        raise pa.ArrowInvalid(f"not {kind}")  # Arrow drops keys that the type lacks
    for is_of_kind, convert in ((pa.types.is_floating, float), (pa.types.is_integer, int)):
        if is_of_kind(kind):
            values = map_present(convert, values)
    return pa.array(values, kind)


def _plain(value: Any) -> Any:
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    # Arrow has no time with an offset, and drops it
    if isinstance(value, datetime.time) and value.tzinfo:
        return value.isoformat()
    if isinstance(value, list) and any(isinstance(item, uuid.UUID) for item in value[:1]):
        return list(map(_plain, value))
    if isinstance(value, dict):
        return _json(value)
    return value


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # an integer of more than 64 bits
        return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))


def _has_fields(value: Any, kind: pa.DataType) -> bool:
    """Return True if `kind` has a field for each key of the objects in the value."""
    if isinstance(value, dict):
        kinds = types_by_name(kind if pa.types.is_struct(kind) else ())
        return all(name in kinds and _has_fields(item, kinds[name]) for name, item in value.items())
    if isinstance(value, list):
        return all(_has_fields(item, kind.value_type) for item in value)
    return True


def _text(value: Any) -> str | None:
    if isinstance(value, UnreadValue):
        return value.text
    plain = _plain(value)
    if isinstance(plain, list):
        return _json(plain)
    if plain is None or isinstance(plain, str):
        return plain
    if isinstance(plain, bytes):
        return plain.decode()
    return str(plain)
