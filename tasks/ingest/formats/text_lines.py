"""Reads text files, also gzipped, as whole lines: a file that breaks off loses only the torn line.

This file does not use the meaning of a line.
"""

import io
import re
from collections.abc import Iterator
from typing import Any

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.gzip_stream import Packed
from overnight.tasks.ingest.formats.text_encoding import recoded
from overnight.tasks.ingest.reading.table_blocks import is_corrupt_file
from overnight.tasks.ingest.versioned_file import SourceFile

PIECE_BYTES = 2**20
LINE_BYTES = 512 * 2**20  # the maximum of a line, which is in memory whole
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks
UTF_8 = "utf-8"
MARK = "\ufdd0"
_NO_UTF8 = re.compile("[\udc80-\udcff]+")


def whole_lines(file: SourceFile, line_ends: tuple[bytes, ...] = (b"\n",), encoding: str = UTF_8) -> Iterator[bytes]:
    """Yield the decompressed file in pieces of whole lines, in UTF-8 and without a byte order mark.

    Each piece ends with one of `line_ends`; a last line without an end gets a line feed. Raise `RowError` for a line of
    more than `LINE_BYTES`, and for UTF-16. If the file is damaged, raise its error after the last whole line.
    """
    for piece in pieces_of(file, line_ends, LINE_BYTES, encoding):
        if isinstance(piece, RowError):
            raise piece
        yield piece


def pieces_of(
    file: SourceFile, line_ends: tuple[bytes, ...], most: int, encoding: str = UTF_8
) -> Iterator[bytes | RowError]:
    """Yield the decompressed file in pieces of whole lines, and a `RowError` in place of a line that is too long.

    Pieces are in UTF-8, whatever the `encoding` of the file.

    Each piece ends with one of `line_ends`; a last line without an end gets a line feed. A byte order mark is left out.
    A line of more than `most` bytes is too long, and is not kept in memory. A line of less than `PIECE_BYTES` may pass
    unchecked. Raise `RowError` for UTF-16 that `encoding` does not name. If the file is damaged, raise its error after
    the last whole line.
    """
    with file.open() as opened:
        stream = recoded(Packed(opened) if file.uri.lower().endswith(".gz") else opened, encoding)
        torn: list[bytes] = []
        length, is_first = 0, True  # of the torn line
        while piece := stream.read(PIECE_BYTES):
            if is_first and not length and piece.startswith(UTF_16):
                found = "found the byte order mark of UTF-16; set source.encoding to utf-16, or convert the file"
                raise RowError(f"expected text in {encoding.upper()}, {found}")
            end = max(piece.rfind(mark) for mark in line_ends) + 1
            if not end:
                length += len(piece)
                torn = [*torn, piece] if length <= most else []
                continue
            rest, start = min(place for mark in line_ends if (place := piece.find(mark)) >= 0), 0
            if length and length + rest > most:
                yield _too_long(length + rest, most)
                torn, start, is_first = [], rest + 1, False
            if whole := b"".join([*torn, piece[start:end]]):
                yield whole.removeprefix(BYTE_ORDER_MARK) if is_first else whole
            torn, length, is_first = [piece[end:]], len(piece) - end, False
        if length > most:
            yield _too_long(length, most)
        elif last := b"".join(torn):
            yield (last.removeprefix(BYTE_ORDER_MARK) if is_first else last) + b"\n"


def _too_long(found: int, most: int) -> RowError:
    return RowError(f"expected a line of at most {most:,} bytes, found {found:,}")


class Utf8File(io.RawIOBase):
    """A binary file of valid UTF-8, made of `pieces` of text that may have other bytes, for a reader that requires it.

    Bytes that are not UTF-8 become `MARK`, a noncharacter of Unicode, and `is_marked` is then True. Damage ends the
    file like an ordinary end, and `damage` keeps the error. `at_end` is True after the last piece. `quotes` is the
    number of double quotes so far.
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
                if not is_corrupt_file(error):
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
