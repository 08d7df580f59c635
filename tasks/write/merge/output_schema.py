"""The published columns: plain Arrow types, no extension types, one schema for all files of a partition."""

from collections.abc import Iterable
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import kinds_in, plain_column
from overnight.tasks.rows.nulls import present
from overnight.tasks.rows.tensors import TENSOR, to_numpy
from overnight.tasks.write.merge.json_values import json_texts

VALUES_A_CHUNK = 2**30
JSON_TEXT = {b"overnight": b"json"}  # marks a staged column of nested values as JSON text


def publishable(table: pa.Table) -> pa.Table:
    """Return `table` with types that can be published: arrays become lists, views and run ends plain values.

    Raise `ContractError` for a column of arrays with different numbers of dimensions.
    """
    fields, columns = [], []
    for field, values in zip(table.schema, table.columns, strict=True):
        column, metadata = plain_column(values), field.metadata
        if column.type == TENSOR:
            column, metadata = _lists(field.name, column), None
        elif _has_empty_struct(column.type):
            column, metadata = json_texts(column), JSON_TEXT
        fields.append(field.with_type(column.type).with_metadata(metadata))
        columns.append(column)
    return pa.table(columns, schema=pa.schema(fields))


def _has_empty_struct(kind: pa.DataType) -> bool:
    """Return True if a type contains a struct without fields."""
    return any(pa.types.is_struct(inner) and not inner.num_fields for inner in kinds_in(kind))


def _lists(name: str, column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return fixed-size lists for arrays of one dimension and one length, otherwise lists, nested if needed."""
    values = to_numpy(column)
    if values.dtype != object and values.ndim == 2 and values.shape[1]:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).reshape(-1)), values.shape[1])
    arrays = present(values)
    if not arrays:
        return pa.nulls(len(values))
    ranks = sorted({value.ndim for value in arrays})
    if len(ranks) > 1:
        raise ContractError(f"column {name!r} has arrays of {ranks[0]} and of {ranks[-1]} dimensions.", "write")
    dtype = np.result_type(*{value.dtype for value in arrays})
    # In chunks, because the 32-bit offsets of a list are limited.
    sizes = np.cumsum([0 if value is None else value.size for value in values])
    bounds = np.flatnonzero(np.diff(sizes // VALUES_A_CHUNK)) + 1
    chunks = []
    for start, stop in pairwise([0, *bounds, len(values)]):
        chunks.append(_nested(values[start:stop], ranks[0], dtype))
    return pa.chunked_array(chunks)


def _nested(values: np.ndarray, rank: int, dtype: np.dtype) -> pa.Array:
    """Return nested lists, null for None, from arrays of one rank, without a Python object per number."""
    arrays = present(values)
    flat = np.concatenate([np.empty(0, dtype), *(value.reshape(-1) for value in arrays)])
    result = pa.array(flat.astype(dtype, copy=False))
    for level in range(rank - 1, 0, -1):
        lengths = [np.full(int(np.prod(value.shape[:level])), value.shape[level]) for value in arrays]
        result = pa.ListArray.from_arrays(_offsets(lengths), result)
    is_missing = pa.array([value is None for value in values])
    rows = np.array([0 if value is None else len(value) for value in values], np.int64)
    return pa.ListArray.from_arrays(_offsets([rows]), result, mask=is_missing)


def _offsets(lengths: list[np.ndarray]) -> pa.Array:
    return pa.array(np.cumsum(np.concatenate([[0], *lengths])), pa.int32())


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return a schema with the columns of all `schemas`, to whose types the rows of each can be cast.

    Raise `ContractError` if the types of a column are incompatible.
    """
    kinds: dict[str, pa.DataType] = {}
    fields = list(chain.from_iterable(schemas))
    texts = {field.name for field in fields if is_json_text(field)}
    for field in fields:
        kind = field.type
        if field.name in texts and pa.types.is_nested(kind):
            kind = pa.string()
        kinds[field.name] = unified(field.name, kinds.get(field.name), kind)
    return pa.schema(list(kinds.items()))


def is_json_text(field: pa.Field) -> bool:
    """Return True if `publishable` converted the values of this staged column to JSON text."""
    return (field.metadata or {}).items() >= JSON_TEXT.items()


def unified(name: str, first: pa.DataType | None, second: pa.DataType) -> pa.DataType:
    """Return a type that can hold the values of both types of the column `name`; `second` if `first` is None.

    Raise `ContractError` if there is no such type.
    """
    if first is None or first == second or pa.types.is_null(second):
        return first or second
    if _is_list(first) and _is_list(second):
        return pa.list_(unified(name, first.value_type, second.value_type))
    schemas = [pa.schema([(name, first)]), pa.schema([(name, second)])]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(name).type
    except pa.ArrowException as error:
        raise ContractError(
            f"column {name!r} is {first} in some rows and {second} in others; return one type.", "write"
        ) from error


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return `table` with exactly the columns and types of `schema`.

    Missing columns become null, other columns are dropped, and times of a finer unit are truncated.
    """
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(len(table), field.type))
        elif pa.types.is_nested(table[field.name].type) and pa.types.is_string(field.type):
            columns.append(json_texts(table[field.name]))  # another part has JSON text in this column
        else:
            options = pc.CastOptions(field.type, allow_time_truncate=True)
            columns.append(pc.cast(table[field.name], options=options))
    return pa.table(columns, schema=schema)
