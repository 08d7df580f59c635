"""The records of a TFRecord file, each compared with its check sums (CRC-32C).

https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details describes the format. This file does
not use the content of a record.
"""

import struct
from collections.abc import Iterator
from typing import Any

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import RowError
from overnight.tasks.ingest.source import too_large

PIECE_BYTES = 2**24  # a length is trusted only after this number of bytes was read


def records(stream: Any, most: int) -> Iterator[bytes | RowError]:
    """Yield the records of `stream`, the bytes of a TFRecord file.

    Yield a `RowError` in place of a record that does not match its check sum, or has more than `most` bytes. Raise
    `RowError` if the next record cannot be found: the file ends inside a record, or a length does not match its check
    sum.
    """
    checksum = _checksum()
    while head := _bytes(stream, 12):
        if len(head) < 12:
            raise RowError(f"expected the length of a record, found {len(head)} bytes at the end of the file")
        if checksum(head[:8]) != _unmasked(head[8:]):
            raise RowError(f"expected the length of a record and its check sum, found {head!r}")
        (length,) = struct.unpack("<Q", head[:8])
        if length > most:
            if (found := _skipped(stream, length + 4)) < length + 4:
                there = f"found {found:,} bytes at the end of the file"
                raise RowError(f"expected a record of {length:,} bytes and its check sum, {there}")
            yield too_large("a record", length, most, "max_row_bytes")
            continue
        record, tail = _bytes(stream, length), _bytes(stream, 4)
        if len(record) < length or len(tail) < 4:
            there = f"found {len(record) + len(tail):,} bytes at the end of the file"
            raise RowError(f"expected a record of {length:,} bytes and its check sum, {there}")
        good = checksum(record) == _unmasked(tail)
        yield record if good else RowError(f"a record of {length:,} bytes does not match its check sum")


def _unmasked(stored: bytes) -> int:
    (masked,) = struct.unpack("<I", stored)
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def _bytes(stream: Any, count: int) -> bytes:
    """Return `count` bytes, or all that remain."""
    pieces = []
    while count > 0 and (piece := stream.read(min(count, PIECE_BYTES))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _skipped(stream: Any, count: int) -> int:
    """Read `count` bytes of the stream without keeping them. Return how many there were."""
    left = count
    while left > 0 and (piece := stream.read(min(left, PIECE_BYTES))):
        left -= len(piece)
    return count - left


def _checksum() -> Any:
    return require_extra("google_crc32c", "source.kind: tfrecord", "ingest").value
