"""Files that may be packed with gzip, as a stream of their bytes, of which a read may give fewer than asked for.

Whether one is packed is told by its first bytes, whatever it is named.
"""

import gzip
import zlib
from typing import Any

from overnight.tasks.errors import RowError

GZIP = b"\x1f\x8b"


def unpacked(opened: Any) -> Any:
    """`opened`, which stands at its beginning, or what gzip makes of it."""
    is_packed = opened.read(len(GZIP)) == GZIP
    opened.seek(0)
    return Packed(opened) if is_packed else opened


class Packed:
    """A packed file whose reads hand over what was unpacked before they raise `RowError` at what cannot be."""

    def __init__(self, opened: Any) -> None:
        self._packed = gzip.GzipFile(fileobj=opened)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._packed.read1(size)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise RowError(f"expected a whole file packed with gzip: {error}") from error
