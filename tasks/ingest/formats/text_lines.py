"""Reads text files, also gzipped, as whole lines: a file that breaks off loses only the torn line."""

import io
import re
from collections.abc import Iterator

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.gzip_stream import Packed
from overnight.tasks.ingest.formats.text_encoding import recoded
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file
from overnight.tasks.ingest.versioned_file import SourceFile

PIECE_BYTES = 2**20
LINE_BYTES = 512 * 2**20  # the maximum of a line, which is in memory whole
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks
UTF_8 = "utf-8"
MARK = "\ufdd0"
_NO_UTF8 = re.compile("[\udc80-\udcff]+")


def whole_lines(file: SourceFile, line_ends: tuple[bytes, ...] = (b"\n",), encoding: str = UTF_8) -> Iterator[bytes]:
    """Yield `pieces_of` a file. Raise the `RowError` of a line of more than `LINE_BYTES`."""
    for piece in pieces_of(file, line_ends, LINE_BYTES, encoding):
        if isinstance(piece, RowError):
            raise piece
        yield piece


def pieces_of(
    file: SourceFile, line_ends: tuple[bytes, ...], most: int, encoding: str = UTF_8
) -> Iterator[bytes | RowError]:
    """Yield the unpacked file in pieces of whole lines, in UTF-8, with a `RowError` for a line above `most` bytes."""
    with file.open() as handle:
        stream = recoded(Packed(handle) if file.uri.lower().endswith(".gz") else handle, encoding)
        torn: list[bytes] = []
        length, mark = 0, BYTE_ORDER_MARK  # of the torn line
        while piece := stream.read(PIECE_BYTES):
            if mark and not length and piece.startswith(UTF_16):
                advice = "set source.encoding to utf-16, or convert the file"
                sentence = f"expected text in {encoding.upper()}, found the byte order mark of UTF-16"
                raise RowError(f"{sentence}; {advice}")
            end = max(map(piece.rfind, line_ends)) + 1
            if not end:
                length += len(piece)
                torn = [*torn, piece] if length <= most else []
                continue
            start = 0
            first_end = min(position for line_end in line_ends if (position := piece.find(line_end)) >= 0)
            if length and length + first_end > most:
                yield _too_long(length + first_end, most)
                torn, start, mark = [], first_end + 1, b""
            if lines := b"".join([*torn, piece[start:end]]).removeprefix(mark):
                yield lines
            torn, length, mark = [piece[end:]], len(piece) - end, b""
        if length > most:
            yield _too_long(length, most)
        elif last := b"".join(torn).removeprefix(mark):
            yield last + b"\n"


def _too_long(size: int, most: int) -> RowError:
    return RowError(f"expected a line of at most {most:,} bytes, found {size:,}")


class Utf8File(io.RawIOBase):
    """A binary file of valid UTF-8, made of `pieces` of text that may have other bytes, for a reader that requires it.

    Bytes that are not UTF-8 become `MARK`, a noncharacter of Unicode, and `is_marked` is then True. Damage ends the
    file like an ordinary end, and `damage` keeps the error. `quotes` is the number of double quotes so far.
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
        content = bytes(self._ready[:size])
        del self._ready[:size]
        return content

    def _add(self, piece: bytes) -> None:
        self.at_end = not piece
        self.quotes += piece.count(b'"')
        try:
            piece.decode()
        except UnicodeDecodeError:
            piece = _NO_UTF8.sub(MARK, piece.decode(errors="surrogateescape")).encode()
            self.is_marked = True
        self._ready += piece
