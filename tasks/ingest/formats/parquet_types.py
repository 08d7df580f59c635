"""Columns and types of Parquet files, joined to the columns of one table if no value changes. It opens no file."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.column_types import fitting
from overnight.tasks.ingest.reading.unit_rows import Judged
from overnight.tasks.rows.arrow_types import (
    is_bytes,
    is_list,
    plain_column,
    plain_type,
    types_by_name,
    with_inner_fields,
    with_types,
)

FILE = b"file"  # in the metadata of a joined field: the path of a file that has the field


def plain(data: pa.Table) -> pa.Table:
    """Return the table with the types of `plain_kind`, so that files differ less."""
    for position, field in enumerate(data.schema):
        kind = plain_kind(field.type)
        if kind != field.type:
            data = data.set_column(position, field.name, plain_column(data[field.name]).cast(kind))
    return data


def plain_kind(kind: pa.DataType) -> pa.DataType:
    """Return `kind` without views, with dictionaries as their values, and with all inner fields nullable."""
    return _nullable(plain_type(kind))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return with_types(schema, plain_kind)


def joined(schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return the columns of all files, by path, each of a type that holds the values of all, or of the first files."""
    fields: dict[str, pa.Field] = {}
    for path, schema in schemas:
        for field in schema:
            first = fields.get(field.name)
            if first is None or pa.types.is_null(first.type):
                fields[field.name] = pa.field(field.name, field.type, metadata=field.metadata or {FILE: path})
            elif kind := wider(first.type, field.type):
                fields[field.name] = first.with_type(kind)
    return pa.schema(list(fields.values()))


def joined_by_frequency(files: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return `joined` columns. If no type holds the values of all files, the type in the most frequent schema wins."""
    counts = Counter(schema for _, schema in files)
    return joined(sorted(files, key=lambda file: -counts[file[1]]))


def conform(rows: Judged, schema: pa.Schema, path: str) -> Judged:
    """Return the rows of the file at `path` in the types of `schema`, with the errors of values that do not fit."""
    data, errors = rows.data, dict(rows.errors)
    for position, field in enumerate(data.schema):
        if field.name not in schema.names:
            continue
        common = schema.field(field.name)
        if common.type == field.type:
            continue
        other_path = (common.metadata or {}).get(FILE, b"").decode()
        sentence = f"column {field.name}: expected {common.type}, as in {other_path}, found {field.type} in {path}"
        if wider(common.type, field.type) != common.type:
            raise RowError(f"{sentence}; write the column with one type")
        values = data[field.name].combine_chunks()
        column, misfits = fitting(values, partial(pc.cast, target_type=common.type), common.type)
        reason = RowError(f"{sentence}, and a value that {common.type} cannot represent")
        errors = dict.fromkeys(misfits, reason) | errors
        data = data.set_column(position, field.name, column)
    return Judged(data, errors)


def wider(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return a type to which values of both types can be cast unchanged; None if there is none."""
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return _wider_struct(first, second)
    if is_list(first) and is_list(second):
        inner = wider(first.value_type, second.value_type)
        return inner and pa.list_(inner)
    if pa.types.is_timestamp(first) and pa.types.is_timestamp(second) and first.tz and second.tz:
        unit = max(first.unit, second.unit, key=["s", "ms", "us", "ns"].index)
        return pa.timestamp(unit, first.tz if first.tz == second.tz else "UTC")
    if is_bytes(first) != is_bytes(second) or _is_inexact(first, second) or _is_inexact(second, first):
        return None
    try:
        schemas = [pa.schema([("x", first)]), pa.schema([("x", second)])]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _wider_struct(first: pa.StructType, second: pa.StructType) -> pa.DataType | None:
    kinds = types_by_name(first)
    for field in second:
        kind = wider(kinds.get(field.name, field.type), field.type)
        if kind is None:
            return None
        kinds[field.name] = kind
    return pa.struct(list(kinds.items()))


def _nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _nullable(kind.value_type)
    return with_inner_fields(kind, lambda field: pa.field(field.name, _nullable(field.type)))


def _is_inexact(first: pa.DataType, second: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(first) and pa.types.is_floating(second))
