"""Files with or without gzip, as a stream of their bytes. A read may return fewer bytes than requested.

The first bytes of a file show whether it is compressed, whatever its name.
"""

import gzip
import zlib
from collections.abc import Iterator
from typing import Any

from overnight.tasks.errors import RowError

GZIP = b"\x1f\x8b"
PIECE_BYTES = 2**24  # a length is trusted only after this number of bytes was read


def pieces(stream: Any, count: int) -> Iterator[bytes]:
    """Yield the next `count` bytes of the stream in pieces, or all that remain."""
    while count > 0 and (piece := stream.read(min(count, PIECE_BYTES))):
        yield piece
        count -= len(piece)


def unpacked(handle: Any) -> Any:
    """Return a stream of the decompressed bytes if `handle` is gzip, otherwise `handle` itself."""
    is_gzip = handle.read(len(GZIP)) == GZIP
    handle.seek(0)
    return Packed(handle) if is_gzip else handle


class Packed:
    """A stream of the decompressed bytes of the gzip file `opened`.

    Reads return all bytes before damaged ones, and then raise `RowError`.
    """

    def __init__(self, handle: Any) -> None:
        self._packed = gzip.GzipFile(fileobj=handle)

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes, or any number if it is negative; none at the end."""
        try:
            return self._packed.read1(size)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise RowError(f"expected a whole gzip file: {error}") from error
