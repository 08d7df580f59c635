"""Columns as readers get them: plain Arrow types, no extension types, one schema for all files of a partition."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tasks.errors import ContractError
from tasks.rows import TENSOR, to_numpy


def publishable(table: pa.Table) -> pa.Table:
    """`table` with arrays as lists: one dimension a row as fixed-size list where all agree, more as nested lists."""
    for place, field in enumerate(table.schema):
        if field.type == TENSOR:
            table = table.set_column(place, field.name, _lists(table[field.name]))
    return table


def _lists(column: pa.ChunkedArray) -> pa.Array:
    values = to_numpy(column)
    if values.dtype != object:
        if values.ndim == 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        return _nested(values)
    kinds = {(value.dtype, value.ndim) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(values))
    kind = pa.from_numpy_dtype(np.result_type(*(dtype for dtype, _ in kinds)))
    for _ in range(max(rank for _, rank in kinds)):
        kind = pa.list_(kind)
    return pa.array([None if value is None else value.tolist() for value in values], kind)


def _nested(values: np.ndarray) -> pa.Array:
    """Lists in lists, from an array of three or more dimensions, without a Python object a number."""
    result = pa.array(np.ascontiguousarray(values).reshape(-1))
    for rank in range(values.ndim - 1, 0, -1):
        count = int(np.prod(values.shape[:rank]))
        result = pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * values.shape[rank], pa.int32()), result)
    return result


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The schema to which every part's rows can be cast. Raises `ContractError` where types cannot be reconciled."""
    fields: dict[str, pa.DataType] = {}
    for schema in schemas:
        for field in schema:
            fields[field.name] = _common(field.name, fields.get(field.name), field.type)
    return pa.schema(list(fields.items()))


def _common(name: str, first: pa.DataType | None, second: pa.DataType) -> pa.DataType:
    if first is None or first == second or pa.types.is_null(second):
        return first or second
    if pa.types.is_fixed_size_list(first) and pa.types.is_fixed_size_list(second):
        return pa.list_(_common(name, first.value_type, second.value_type))
    if _is_list(first) and _is_list(second):
        return pa.list_(_common(name, first.value_type, second.value_type))
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
    """`table` with exactly the columns and types of `schema`; what is missing is null."""
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
