"""Text files, also gzipped, as whole lines, so that a file that breaks off loses no line but the torn one.

This file knows nothing of what a line means.
"""

import io
import re
from collections.abc import Iterator
from typing import Any

from tasks.errors import RowError
from tasks.ingest.packed import Packed
from tasks.ingest.tables import is_damage
from tasks.ingest.versioned import SourceFile

PIECE_BYTES = 2**20
LINE_BYTES = 512 * 2**20  # as much as the reader of CSV holds
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # its byte order marks
MARK = "\ufdd0"
_NO_UTF8 = re.compile("[\udc80-\udcff]+")


def whole_lines(file: SourceFile, line_ends: tuple[bytes, ...] = (b"\n",)) -> Iterator[bytes]:
    """The file in pieces that end where a line does, the last one in any case; without a byte order mark.

    Raises what breaks the reading, after the last line that is whole.
    """
    with file.open() as opened:
        stream = Packed(opened) if file.uri.lower().endswith(".gz") else opened
        torn: list[bytes] = []
        is_first = True
        while piece := stream.read(PIECE_BYTES):
            if is_first and not torn and piece.startswith(UTF_16):
                raise RowError("expected text in UTF-8, found the byte order mark of UTF-16; convert the file")
            end = max(piece.rfind(mark) for mark in line_ends) + 1
            if not end:
                torn.append(piece)
                _refuse_endless(torn)
                continue
            whole = b"".join([*torn, piece[:end]])
            yield whole.removeprefix(BYTE_ORDER_MARK) if is_first else whole
            torn, is_first = [piece[end:]], False
        if last := b"".join(torn):
            yield (last.removeprefix(BYTE_ORDER_MARK) if is_first else last) + b"\n"


def _refuse_endless(torn: list[bytes]) -> None:
    """Raise `RowError` for the beginning of a line that is longer than a process holds: a packed file may be."""
    if sum(map(len, torn)) > LINE_BYTES:
        raise RowError(f"expected lines of at most {LINE_BYTES:,} bytes, found a longer one")


class Utf8File(io.RawIOBase):
    """Pieces of lines as a file that is UTF-8 throughout and ends well, for a reader that takes nothing else.

    Bytes that are no UTF-8 become `MARK`, a character that Unicode keeps out of texts; `is_marked` tells of it. Damage
    ends the file, and is kept in `damage`. `quotes` counts double quotes.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._ready = pieces, bytearray()
        self.is_marked, self.at_end, self.quotes = False, False, 0
        self.damage: Exception | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self.at_end and (size < 0 or len(self._ready) < size):
            try:
                self._add(next(self._pieces, b""))
            except Exception as error:
                if not is_damage(error):
                    raise
                self.damage, self.at_end = error, True
        size = len(self._ready) if size < 0 else size
        found = bytes(self._ready[:size])
        del self._ready[:size]
        return found

    def _add(self, piece: Any) -> None:
        self.at_end = not piece
        self.quotes += piece.count(b'"')
        try:
            piece.decode()
        except UnicodeDecodeError:
            piece = _NO_UTF8.sub(MARK, piece.decode(errors="surrogateescape")).encode()
            self.is_marked = True
        self._ready += piece
