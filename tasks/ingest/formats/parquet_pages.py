"""Counts the values in the pages of a Parquet column by the headers of the pages, and not by the footer.

Headers use Thrift's compact protocol: https://parquet.apache.org/docs/file-format/data-pages/,
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. No value is read.
"""

from typing import Any

HEADER_BYTES = (2**12, 2**20)  # bytes read for a header; its statistics may contain long values
TRUE, FALSE, BYTE, INT16, INT32, INT64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
COMPRESSED_SIZE, DATA_PAGE, DATA_PAGE_V2, NUM_VALUES = 3, 5, 8, 1  # fields of a header, and of a data page's header


def values_in_pages(opened: Any, start: int, size: int) -> int | None:
    """Return the number of values, nulls included, in the Parquet pages of a file, `size` bytes from byte `start` on.

    Return None if the bytes are not a sequence of pages with headers.
    """
    place, found = start, 0
    while place < start + size:
        header = _header(opened, place)
        if header is None:
            return None
        values, length = header
        found += values
        place += length
    return found if place == start + size else None


def _header(opened: Any, place: int) -> tuple[int, int] | None:
    """Return the values in the page that begins at `place`, and the page's bytes; None if there is no header."""
    for count in HEADER_BYTES:
        opened.seek(place)
        reader = _Compact(opened.read(count))
        try:
            fields = reader.struct()
            page = fields.get(DATA_PAGE) or fields.get(DATA_PAGE_V2) or {NUM_VALUES: 0}
            values, size = int(page[NUM_VALUES]), int(fields[COMPRESSED_SIZE])
            return (values, reader.place + size) if size >= 0 else None
        except (IndexError, KeyError, TypeError, ValueError, RecursionError):
            continue
    return None


class _Compact:
    """A reader of values in Thrift's compact protocol, in sequence. Raises `IndexError` if the bytes end early."""

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def struct(self) -> dict[int, Any]:
        """Return fields by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            kind = head & 15
            fields[number] = kind == TRUE if kind in (TRUE, FALSE) else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE, BYTE):  # truth values too, in a list
            return self._byte()
        if kind in (INT16, INT32, INT64):
            return self._whole()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind in (LIST, SET):
            head = self._byte()
            return [self._value(head & 15) for _ in range(head >> 4 if head >> 4 < 15 else self._varint())]
        if kind == MAP and not (count := self._varint()):
            return {}
        if kind == MAP:
            kinds = self._byte()
            return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(count)]
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"no type of the compact protocol: {kind}")

    def _whole(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _varint(self) -> int:
        found, shift = 0, 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    def _byte(self) -> int:
        self.place += 1
        return self._content[self.place - 1]

    def _bytes(self, count: int) -> bytes:
        if self.place + count > len(self._content):
            raise IndexError(count)
        self.place += count
        return self._content[self.place - count : self.place]
