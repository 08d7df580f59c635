"""Convert Arrow columns to columns of a database, and their values to values for its driver.

    whole numbers                    BIGINT; uint64 NUMERIC(20)
    floats                           DOUBLE PRECISION
    decimals                         NUMERIC; TEXT in SQLite, which would round them
    text, dates, times, truth values the same
    timestamps                       TIMESTAMP in microseconds, with a time zone if they have one; SQLite has no zones,
                                     so there they are in UTC
    durations                        BIGINT, in their own unit
    binary                           BYTEA, BLOB
    lists of numbers, truth, text    an array in PostgreSQL (REAL[] for float32, DOUBLE PRECISION[], BIGINT[] ...); JSON
                                     in SQLite
    other lists, structs, maps       JSONB in PostgreSQL, JSON in SQLite

A column of type null, without a value in any row, is left out until a run gives it a type.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from overnight.tasks.errors import ContractError
from overnight.tasks.write.merge.json_values import plain, values

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine


def sql_columns(schema: pa.Schema) -> "dict[str, TypeEngine[Any]]":
    """Return the columns of a schema as name -> SQL type, without columns of type null.

    Raise `ContractError` for a type that no database stores.
    """
    return {field.name: _type(field.name, _known(field.type)) for field in schema if not types.is_null(field.type)}


def sql_rows(table: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    """Return one dict per row, from the columns `names`, with values for a database's driver."""
    columns = [_values(table[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def is_json(kind: pa.DataType) -> bool:
    """Return True if columns of this type are JSON in every database."""
    if not types.is_nested(kind) or types.is_struct(kind) or types.is_map(kind):
        return types.is_nested(kind)
    return types.is_nested(kind.value_type) or types.is_null(kind.value_type)


def _known(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values that `plain` makes."""
    return plain(pa.chunked_array([], kind)).type


def _type(name: str, kind: pa.DataType) -> "TypeEngine[Any]":
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql

    if types.is_nested(kind):
        json = sa.JSON(none_as_null=True)
        if is_json(kind):
            return json.with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
        element = kind.value_type
        single = sa.REAL() if element == pa.float32() else _type(name, _known(element))
        return json.with_variant(postgresql.ARRAY(single), "postgresql")
    if types.is_decimal(kind) or kind == pa.uint64():
        precision, scale = (20, 0) if kind == pa.uint64() else (kind.precision, kind.scale)
        return sa.Numeric(precision, scale).with_variant(sa.Text(), "sqlite")
    for is_kind, found in (
        (types.is_boolean, sa.Boolean()),
        (types.is_integer, sa.BigInteger()),
        (types.is_floating, sa.Double()),
        (types.is_date, sa.Date()),
        (types.is_time, sa.Time()),
        (_is_text, sa.Text()),
        (_is_bytes, sa.LargeBinary()),
    ):
        if is_kind(kind):
            return found
    if types.is_timestamp(kind):
        return sa.DateTime(timezone=kind.tz is not None)
    raise ContractError(f"column {name!r}: a database cannot store {kind}. Return another type.", "write")


def _values(column: pa.ChunkedArray) -> list[Any]:
    if types.is_decimal(column.type) or column.type == pa.uint64():
        return [None if value is None else str(value) for value in column.to_pylist()]
    if types.is_timestamp(column.type) and column.type.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in values(column)]


def _is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    several = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(is_one(kind) for is_one in several)
