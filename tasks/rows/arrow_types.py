"""Tests for Arrow types: lists, texts and bytes of every length."""

import pyarrow as pa
from pyarrow import types


def is_list(kind: pa.DataType) -> bool:
    """Return True for lists of any and of one length."""
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    """Return True for strings."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Return True for bytes of any and of one length."""
    several = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(is_one(kind) for is_one in several)
