"""The published columns: plain Arrow types, no extension types, one schema for all files of a partition."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import plain_column
from overnight.tasks.rows.tensors import TENSOR, to_numpy
from overnight.tasks.write.merge.json_values import json_texts

VALUES_A_CHUNK = 2**30
JSON_TEXT = {b"overnight": b"json"}  # marks a staged column of nested values as JSON text


def publishable(table: pa.Table) -> pa.Table:
    """Return `table` with types that can be published: arrays become lists, views and run ends plain values.

    Arrays of one dimension become fixed-size lists if all have the same length, otherwise lists. Arrays of more
    dimensions become nested lists. Structs without fields become JSON text, because Parquet has no type for them. Raise
    `ContractError` for a column of arrays with different numbers of dimensions.
    """
    columns = [plain_column(column) for column in table.columns]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    table = pa.table(columns, schema=pa.schema(fields))
    for place, field in enumerate(table.schema):
        if field.type == TENSOR:
            table = table.set_column(place, field.name, _lists(field.name, table[field.name]))
        elif _has_no_keys(field.type):
            marked = pa.field(field.name, pa.string(), metadata=JSON_TEXT)
            table = table.set_column(place, marked, json_texts(table[field.name]))
    return table


def _has_no_keys(kind: pa.DataType) -> bool:
    """Return True if a type contains a struct without fields."""
    if pa.types.is_struct(kind) and not kind.num_fields:
        return True
    is_whole = not pa.types.is_nested(kind) or pa.types.is_union(kind)
    return not is_whole and any(_has_no_keys(kind.field(place).type) for place in range(kind.num_fields))


def _lists(name: str, column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    values = to_numpy(column)
    if values.dtype != object and values.ndim == 2 and values.shape[1]:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).reshape(-1)), values.shape[1])
    present = [value for value in values if value is not None]
    if not present:
        return pa.nulls(len(values))
    ranks = sorted({value.ndim for value in present})
    if len(ranks) > 1:
        raise ContractError(f"column {name!r} has arrays of {ranks[0]} and of {ranks[-1]} dimensions.", "write")
    dtype = np.result_type(*{value.dtype for value in present})
    # In chunks, because the 32-bit offsets of a list are limited.
    sizes = np.cumsum([0 if value is None else value.size for value in values])
    bounds = np.flatnonzero(np.diff(sizes // VALUES_A_CHUNK)) + 1
    parts = (values[start:stop] for start, stop in pairwise([0, *bounds, len(values)]))
    return pa.chunked_array([_nested(part, ranks[0], dtype) for part in parts])


def _nested(values: np.ndarray, rank: int, dtype: np.dtype) -> pa.Array:
    """Return nested lists, null for None, from arrays of one rank, without a Python object per number."""
    present = [value for value in values if value is not None]
    result = pa.array(_joined([np.ascontiguousarray(value).reshape(-1) for value in present], dtype))
    for level in range(rank - 1, 0, -1):
        lengths = [np.full(int(np.prod(value.shape[:level])), value.shape[level]) for value in present]
        result = pa.ListArray.from_arrays(_offsets(_joined(lengths, np.dtype(np.int64))), result)
    missing = pa.array([value is None for value in values])
    lengths_of_rows = np.array([0 if value is None else len(value) for value in values], np.int64)
    return pa.ListArray.from_arrays(_offsets(lengths_of_rows), result, mask=missing)


def _joined(arrays: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.empty(0, dtype)


def _offsets(lengths: np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return a schema with the columns of all `schemas`, to whose types the rows of each can be cast.

    Raise `ContractError` if the types of a column are incompatible.
    """
    fields: dict[str, pa.DataType] = {}
    schemas = list(schemas)
    texts = {field.name for schema in schemas for field in schema if is_json_text(field)}
    for schema in schemas:
        for field in schema:
            kind = pa.string() if field.name in texts and pa.types.is_nested(field.type) else field.type
            fields[field.name] = unified(field.name, fields.get(field.name), kind)
    return pa.schema(list(fields.items()))


def is_json_text(field: pa.Field) -> bool:
    """Return True if `publishable` converted the values of this staged column to JSON text."""
    return (field.metadata or {}).items() >= JSON_TEXT.items()


def unified(name: str, first: pa.DataType | None, second: pa.DataType) -> pa.DataType:
    """Return a type that can hold the values of both types of the column `name`; `second` if `first` is None.

    Raise `ContractError` if there is no such type.
    """
    if first is None or first == second or pa.types.is_null(second):
        return first or second
    if pa.types.is_fixed_size_list(first) and pa.types.is_fixed_size_list(second):
        return pa.list_(unified(name, first.value_type, second.value_type))
    if _is_list(first) and _is_list(second):
        return pa.list_(unified(name, first.value_type, second.value_type))
    try:
        joined = pa.unify_schemas(
            [pa.schema([(name, first)]), pa.schema([(name, second)])], promote_options="permissive"
        )
    except pa.ArrowException as error:
        raise ContractError(
            f"column {name!r} is {first} in some rows and {second} in others; return one type.", "write"
        ) from error
    return joined.field(name).type


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return `table` with exactly the columns and types of `schema`.

    Missing columns become null, other columns are dropped, and times of a finer unit are truncated.
    """
    columns = [
        _cast(table[field.name], field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_nested(column.type) and pa.types.is_string(kind):  # another part has JSON text in this column
        return json_texts(column)
    return pc.cast(column, options=pc.CastOptions(kind, allow_time_truncate=True))
