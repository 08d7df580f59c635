"""Headers of pages, their bytes written by hand from the description of Thrift's compact protocol."""

import io

import pytest

from overnight.tasks.ingest.formats.parquet_pages import values_in_pages

# Of type 0, with 4 bytes of content; a page of 7 values. A field begins with its distance from the last, and its type.
BEGINNING = b"\x15\x00" + b"\x25\x08" + b"\x2c\x15\x0e\x00"
FIELDS = {
    "none": b"",
    "a truth and a byte": b"\x11\x13\x07",
    "a fraction": b"\x17" + bytes(8),
    "a text": b"\x18\x02ab",
    "a list of bytes": b"\x19\x23\x01\x02",
    "a map": b"\x1b\x01\x58\x04\x01x",
    "a map of nothing": b"\x1b\x00",
    "a field far away": b"\x05\x50\x02",
}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_a_page_is_counted_whatever_else_its_header_has_and_no_byte_may_be_missing(field: bytes) -> None:
    page = BEGINNING + field + b"\x00" + b"data"
    assert values_in_pages(io.BytesIO(page * 2), 0, 2 * len(page)) == 14
    assert values_in_pages(io.BytesIO(page), 0, len(page) - 1) is None


@pytest.mark.parametrize("content", [b"\x1f", b"\x18\x7fa", b"\x15", b"\x00", b"\x25\x07\x00", b"\x1c" * 10_000])
def test_bytes_that_are_no_header_tell_nothing(content: bytes) -> None:
    assert values_in_pages(io.BytesIO(content), 0, len(content)) is None
