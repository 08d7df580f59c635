"""Arrow's types of lists, texts, bytes and files, innermost values, and replacements for types that Parquet lacks.

A file is bytes, or a struct of `bytes` and `path` as in Hugging Face's Parquet files.
"""

from collections.abc import Callable, Container, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

FILES = "binary, or a struct with bytes"  # the types of columns of files, in messages


def is_list(kind: pa.DataType) -> bool:
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_bytes(kind: pa.DataType) -> bool:
    is_view = types.is_binary_view(kind)
    return is_view or types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def holds_files(kind: pa.DataType) -> bool:
    """Return True if the values of a type are files: bytes, or structs with a field `bytes`."""
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return types.is_binary(kind) or types.is_large_binary(kind)


def files_in(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the bytes of the files in such a column; null for a null struct, and for null bytes in it."""
    return pc.struct_field(column, "bytes") if types.is_struct(column.type) else column


def types_by_name(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in fields}


def columns_except(schema: pa.Schema, names: Container[str]) -> pa.Schema:
    """Return the columns of a schema whose names are not among `names`."""
    return pa.schema([field for field in schema if field.name not in names])


def with_types(schema: pa.Schema, convert: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    """Return the columns of a schema in converted types, without metadata."""
    return pa.schema(list(zip(schema.names, map(convert, schema.types), strict=True)))


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, and another type unchanged."""
    if types.is_dictionary(kind):
        return kind.value_type
    return kind


def columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column without views and run ends, also inside lists and structs: Parquet lacks these types."""
    kind = plain_type(column.type)
    if kind == column.type:
        return column
    try:
        # Arrow 26 casts it to an array whose offsets are too short
        if "list_view" not in str(column.type):
            return column.cast(kind)
    except pa.ArrowNotImplementedError:  # run ends, and views in a dictionary
        pass
    return pa.chunked_array([pa.array(chunk.to_pylist(), kind) for chunk in column.chunks], kind)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that `plain_column` gives a column of this type."""
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(plain_type(kind.value_type))
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if not (types.is_dictionary(kind) or is_list(kind)):
        return kind
    inner = plain_type(kind.value_type)
    if inner == kind.value_type:
        return kind
    if types.is_dictionary(kind):
        return inner
    return pa.list_(inner, kind.list_size if types.is_fixed_size_list(kind) else -1)


def with_inner_fields(kind: pa.DataType, convert: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return a list, struct or map with its inner fields converted, and another type unchanged."""
    if types.is_struct(kind):
        return pa.struct(list(map(convert, kind)))
    if types.is_map(kind):
        return pa.map_(convert(kind.key_field).type, convert(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(convert(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(convert(kind.value_field))
    return pa.list_(convert(kind.value_field)) if types.is_list(kind) else kind


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of the innermost values of an array: those in its lists, structs, maps and dictionaries."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from leaves(array.storage)
    elif types.is_dictionary(kind):
        yield from leaves(array.dictionary_decode())
    elif types.is_map(kind):
        # a slice's keys would be those of the whole array
        copy = array.take(pa.array(range(len(array)), pa.int64()))
        yield from leaves(copy.keys)
        yield from leaves(copy.items)
    elif types.is_struct(kind):
        for inner in array.flatten():
            yield from leaves(inner)
    elif types.is_nested(kind):
        yield from leaves(pc.list_flatten(array))
    else:
        yield array


def kinds_in(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and all its inner types, but none inside of a union."""
    yield kind
    if not types.is_union(kind):
        for index in range(kind.num_fields):
            yield from kinds_in(kind.field(index).type)
