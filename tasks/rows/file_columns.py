"""Columns whose values are files: bytes, or Hugging Face's structs of `bytes` and `path`, as its Parquet files have."""

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

EXPECTED = "binary, or a struct with bytes"


def holds_files(kind: pa.DataType) -> bool:
    """Return whether the values of a type are files."""
    return _is_bytes(kind) or _is_struct_of_files(kind)


def files_in(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the files of a column that `holds_files`, as bytes; null where a struct or its bytes are."""
    return pc.struct_field(column, "bytes") if types.is_struct(column.type) else column


def _is_struct_of_files(kind: pa.DataType) -> bool:
    return types.is_struct(kind) and kind.get_field_index("bytes") >= 0 and _is_bytes(kind.field("bytes").type)


def _is_bytes(kind: pa.DataType) -> bool:
    return types.is_binary(kind) or types.is_large_binary(kind)
