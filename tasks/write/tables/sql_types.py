"""Convert Arrow columns to columns of a database, and their values to values for its driver.

Whole numbers are BIGINT, floats DOUBLE PRECISION, uint64 and decimals NUMERIC (TEXT in SQLite, which would round them),
and durations BIGINT in their own unit. Timestamps have microseconds, in SQLite without a zone, in UTC. Lists of plain
values are arrays in PostgreSQL; other nested values are JSONB there, and JSON in SQLite.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import is_bytes, is_text
from overnight.tasks.rows.nulls import map_present
from overnight.tasks.write.merge.json_values import plain, values

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine


def sql_columns(schema: pa.Schema) -> "dict[str, TypeEngine[Any]]":
    """Return the columns of a schema as name -> SQL type. Raise `ContractError` for a type that no database stores.

    A column of type null, without a value in any row, is left out until a run gives it a type.
    """
    return {field.name: _type(field.name, field.type) for field in schema if not types.is_null(field.type)}


def sql_rows(table: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    """Return one dict per row, from the columns `names`, with values for a database's driver."""
    columns = [_values(table[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def is_json(kind: pa.DataType) -> bool:
    """Return True if columns of this type are JSON in every database."""
    if not types.is_nested(kind) or types.is_struct(kind) or types.is_map(kind):
        return types.is_nested(kind)
    return types.is_nested(kind.value_type) or types.is_null(kind.value_type)


def _type(name: str, kind: pa.DataType) -> "TypeEngine[Any]":
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql

    kind = plain(pa.chunked_array([], kind)).type
    if types.is_nested(kind):
        json = sa.JSON(none_as_null=True)
        if is_json(kind):
            return json.with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
        element = kind.value_type
        single = sa.REAL() if element == pa.float32() else _type(name, element)
        return json.with_variant(postgresql.ARRAY(single), "postgresql")
    if types.is_decimal(kind) or kind == pa.uint64():
        precision, scale = (20, 0) if kind == pa.uint64() else (kind.precision, kind.scale)
        return sa.Numeric(precision, scale).with_variant(sa.Text(), "sqlite")
    if types.is_timestamp(kind):
        return sa.DateTime(timezone=kind.tz is not None)
    for is_kind, sql_type in (
        (types.is_boolean, sa.Boolean()),
        (types.is_integer, sa.BigInteger()),
        (types.is_floating, sa.Double()),
        (types.is_date, sa.Date()),
        (types.is_time, sa.Time()),
        (is_text, sa.Text()),
        (is_bytes, sa.LargeBinary()),
    ):
        if is_kind(kind):
            return sql_type
    raise ContractError(f"column {name!r}: a database cannot store {kind}. Return another type.", "write")


def _values(column: pa.ChunkedArray) -> list[Any]:
    if types.is_decimal(column.type) or column.type == pa.uint64():
        return map_present(str, column.to_pylist())
    if types.is_timestamp(column.type) and column.type.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in values(column)]
