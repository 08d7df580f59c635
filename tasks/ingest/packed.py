"""Files that may be packed with gzip, as a stream of their bytes, of which a read may give fewer than asked for.

Whether one is packed is told by its first bytes, whatever it is named.
"""

import gzip
from typing import Any

GZIP = b"\x1f\x8b"


def unpacked(opened: Any) -> Any:
    """`opened`, which stands at its beginning, or what gzip makes of it."""
    is_packed = opened.read(len(GZIP)) == GZIP
    opened.seek(0)
    return _Packed(gzip.GzipFile(fileobj=opened)) if is_packed else opened


class _Packed:
    """A packed file whose reads hand over what was unpacked before they fail at what cannot be."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        self._packed = packed

    def read(self, size: int = -1) -> bytes:
        return self._packed.read1(size)
