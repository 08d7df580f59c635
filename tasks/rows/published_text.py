"""Convert the columns of a published CSV or JSON Lines file to the types in which they were published.

The receipt of a publish names the type of each column. Lists, structs and maps stay as the file has them.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.errors import InputError
from overnight.tasks.rows.arrow_types import is_bytes
from overnight.tasks.rows.blocks import with_column
from overnight.tasks.rows.nulls import map_present

_ZONED = re.compile(r"timestamp\[(\w+), tz=(.+)\]")
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")
_DECIMALS = {"32": pa.decimal32, "64": pa.decimal64, "128": pa.decimal128, "256": pa.decimal256}


def published_types(receipt: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Return column -> type of the published columns whose type has no inner types; also `row_id`."""
    kinds = {"row_id": pa.string()}
    for name, record in receipt.get("columns", {}).items():
        kind = _type_of(record["type"])
        if kind is not None:
            kinds[name] = kind
    return kinds


def carriers(kinds: Mapping[str, pa.DataType], sink_kind: str) -> dict[str, str]:
    """Return column -> name of the type as which a file has the values: in JSON numbers and truths, otherwise text."""
    if sink_kind == "csv":
        return dict.fromkeys(kinds, "string")
    return {name: _in_json(kind) for name, kind in kinds.items()}


def as_written(schema: pa.Schema, kinds: Mapping[str, pa.DataType], sink_kind: str) -> pa.Schema:
    """Return the schema with the types of `carriers` for the columns in `kinds`."""
    types_in_file = {name: pa.type_for_alias(kind) for name, kind in carriers(kinds, sink_kind).items()}
    return pa.schema([field.with_type(types_in_file.get(field.name, field.type)) for field in schema])


def restored(table: pa.Table, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the table with the columns in `kinds` in their published types. Raise `InputError` for another value."""
    for name in table.column_names:
        if name in kinds and kinds[name] != table.schema.field(name).type:
            try:
                table = with_column(table, name, _restored(table[name], kinds[name]))
            except (pa.ArrowInvalid, ValueError) as error:
                raise InputError(f"column {name!r}: expected {kinds[name]} as it was published: {error}") from error
    return table


def inferred(values: Sequence[Any]) -> pa.Array:
    """Return Python values as Arrow infers their type; as JSON text if no type holds all, such as 2**64-1 in a list."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array(map_present(partial(json.dumps, default=str), values))


def _type_of(name: str) -> pa.DataType | None:
    if match := _ZONED.fullmatch(name):
        return pa.timestamp(*match.groups())
    if match := _DECIMAL.fullmatch(name):
        return _DECIMALS[match[1]](int(match[2]), int(match[3]))
    if match := _FIXED.fullmatch(name):
        return pa.binary(int(match[1]))
    try:
        kind = pa.type_for_alias(name)
    except ValueError:
        return None  # a type with inner types
    return None if types.is_null(kind) else kind


def _in_json(kind: pa.DataType) -> str:
    if types.is_floating(kind):
        return "double"
    if kind == pa.uint64() or types.is_boolean(kind):
        return str(kind)
    return "int64" if types.is_integer(kind) or types.is_duration(kind) else "string"


def _restored(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if is_bytes(kind):
        return pa.array(map_present(base64.b64decode, column.to_pylist()), kind)
    if types.is_timestamp(kind):  # the text may have more digits than the unit has
        finest = "ns" if kind.unit == "ns" else "us"
        return column.cast(pa.timestamp(finest, kind.tz)).cast(kind)
    if types.is_time(kind):
        moments = pc.binary_join_element_wise("1970-01-01T", column, "").cast(pa.timestamp("ns"))
        return moments.cast(pa.time64("ns")).cast(kind)
    if types.is_duration(kind):
        return column.cast(pa.int64()).cast(kind)
    if types.is_floating(kind):
        return pc.cast(column.cast(pa.float64()), kind, safe=False)  # the number was of that type
    return column.cast(kind)
