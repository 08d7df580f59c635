"""Columns whose values are files: bytes, or structs of `bytes` and `path` as in Hugging Face's Parquet files."""

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

EXPECTED = "binary, or a struct with bytes"


def holds_files(kind: pa.DataType) -> bool:
    """Return True if the values of a type are files: bytes, or structs with a field `bytes`."""
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return types.is_binary(kind) or types.is_large_binary(kind)


def files_in(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the bytes of the files in such a column; null for a null struct, and for null bytes in it."""
    return pc.struct_field(column, "bytes") if types.is_struct(column.type) else column
