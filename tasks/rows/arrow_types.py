"""Check whether an Arrow type is one of the types of lists, texts or bytes."""

import pyarrow as pa
from pyarrow import types


def is_list(kind: pa.DataType) -> bool:
    """Return True for a type of lists: list, large_list or fixed-size list."""
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    """Return True for a type of texts: string, large_string or string_view."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Return True for a type of bytes: binary, large_binary, binary_view or fixed-size binary."""
    several = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(is_one(kind) for is_one in several)
