"""Reads NumPy's .npy format as a stream: the header's fields, and the rows after it, some at a time.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html describes it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.gzip_stream import pieces

MOST_AXES = 64
MOST_ROW_BYTES = 2**48  # far below the largest integers of NumPy and Arrow


@dataclass(frozen=True)
class Header:
    """The header of an array with `rows` entries along its first axis. Each entry is an array of shape `row_shape`.

    The data begins at byte `start`. If `is_fortran`, the values of a row are scattered over the file.
    """

    dtype: np.dtype
    rows: int
    row_shape: tuple[int, ...]
    is_fortran: bool
    start: int

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.row_shape)


def read_header(handle: Any) -> Header:
    """Return the header of a .npy file, and leave the file at its data. Raise `RowError` if it has no rows to read."""
    try:
        version = npy.read_magic(handle)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(handle)
    except (ValueError, SyntaxError, TypeError, KeyError, TokenError, RecursionError, MemoryError) as error:
        raise RowError(f"expected an array as numpy.save writes it: {error}") from None
    if version >= (3, 0) and dtype.names:  # like 2.0, but UTF-8
        dtype.names = tuple(name.encode("latin-1").decode() for name in dtype.names)
    if dtype.hasobject:
        raise RowError(f"expected an array of plain values, found Python objects ({dtype}), which are not unpickled")
    if not shape:
        raise RowError("expected an array of at least one axis, whose first counts the rows; found a single value")
    if len(shape) > MOST_AXES or not all(type(length) is int and length >= 0 for length in shape):
        raise RowError(f"expected at most {MOST_AXES} axes, each of a length from 0 on, found the shape {shape!r:.200}")
    header = Header(dtype, shape[0], shape[1:], is_fortran and len(shape) > 1, handle.tell())
    if header.row_bytes >= MOST_ROW_BYTES:
        raise RowError(f"expected rows that fit into memory, found {header.row_bytes:,} bytes in each by the header")
    if header.rows and not header.row_bytes:
        raise RowError(f"expected rows with values, found an array of shape {shape} and type {dtype}")
    return header


def read_rows(handle: Any, header: Header, count: int, rows_at_once: int) -> Iterator[np.ndarray]:
    """Yield the next `count` rows, at most `rows_at_once` at a time. `handle` must be at the beginning of a row."""
    if header.is_fortran:
        content = b"".join(pieces(handle, header.row_bytes * header.rows))
        if len(content) < header.row_bytes * header.rows:
            raise RowError("the file ends before its array does, whose rows are not stored one after another")
        shape = header.rows, *header.row_shape
        whole = np.frombuffer(content, header.dtype).reshape(shape, order="F")
        for start in range(0, count, rows_at_once):
            yield whole[start : min(count, start + rows_at_once)]
        return
    for start in range(0, count, rows_at_once):
        limit = min(rows_at_once, count - start)
        content = b"".join(pieces(handle, limit * header.row_bytes))
        rows = len(content) // header.row_bytes
        values = np.frombuffer(content[: rows * header.row_bytes], header.dtype)
        yield values.reshape(rows, *header.row_shape)
        if rows < limit:
            raise RowError("the file ends before this row")
