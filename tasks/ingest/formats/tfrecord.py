"""The records of a TFRecord file, each compared with its check sums (CRC-32C).

https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details describes the format. This file does
not use the content of a record.
"""

import struct
from collections.abc import Iterator
from typing import Any

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import RowError
from overnight.tasks.ingest.reading.file_errors import too_large

PIECE_BYTES = 2**24  # a length is trusted only after this number of bytes was read


def records(stream: Any, most: int) -> Iterator[bytes | RowError]:
    """Yield the records of a file, with a `RowError` for one of another check sum or of more than `most` bytes."""
    checksum = require_extra("google_crc32c", "source.kind: tfrecord", "ingest").value
    while head := b"".join(_pieces(stream, 12)):
        if len(head) < 12:
            raise RowError(f"expected the length of a record, found {len(head)} bytes at the end of the file")
        if checksum(head[:8]) != _unmasked(head[8:]):
            raise RowError(f"expected the length of a record and its check sum, found {head!r}")
        (length,) = struct.unpack("<Q", head[:8])
        content = b""
        if length > most:
            size = sum(map(len, _pieces(stream, length + 4)))
        else:
            content = b"".join(_pieces(stream, length + 4))
            size = len(content)
        if size < length + 4:
            expected = f"expected a record of {length:,} bytes and its check sum"
            raise RowError(f"{expected}, found {size:,} bytes at the end of the file")
        record = content[:length]
        if length > most:
            yield too_large("a record", length, most, "max_row_bytes")
        elif checksum(record) == _unmasked(content[length:]):
            yield record
        else:
            yield RowError(f"a record of {length:,} bytes does not match its check sum")


def _unmasked(stored: bytes) -> int:
    (masked,) = struct.unpack("<I", stored)
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def _pieces(stream: Any, count: int) -> Iterator[bytes]:
    """Yield the next `count` bytes of the stream in pieces, or all that remain."""
    while count > 0 and (piece := stream.read(min(count, PIECE_BYTES))):
        yield piece
        count -= len(piece)
