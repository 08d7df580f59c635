"""Files in other character sets, read as UTF-8 piece by piece."""

import io

import pytest
from pydantic import TypeAdapter, ValidationError

from overnight.tasks.ingest.formats.text_encoding import Encoding, recoded

TEXT = "é,日,🦉\n"


def read(content: bytes, encoding: str, size: int) -> bytes:
    stream = recoded(io.BytesIO(content), encoding)
    return b"".join(iter(lambda: stream.read(size), b""))


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "gb18030", "utf-7"])
def test_a_character_that_a_read_cuts_is_whole(encoding: str, size: int) -> None:
    assert read(TEXT.encode(encoding), encoding, size) == TEXT.encode()


@pytest.mark.parametrize(("content", "encoding"), [(b"a\n\x81\nb\n", "cp1252"), (b"a\0\n\0b", "utf-16-le")])
def test_bytes_without_a_character_are_not_utf_8_and_cost_their_own_line(content: bytes, encoding: str) -> None:
    lines = read(content, encoding, 1000).split(b"\n")
    bad = [line for line in lines if line.decode(errors="replace") != line.decode(errors="ignore")]
    assert len(bad) == 1
    assert lines[0] == b"a"


def test_a_file_in_utf_8_is_read_as_it_is() -> None:
    file = io.BytesIO(b"\xff")
    assert recoded(file, "UTF8") is file


@pytest.mark.parametrize("name", ["latin-1", "cp1252", "shift_jis", "utf-8-sig"])
def test_a_character_set_is_taken_by_any_of_its_names(name: str) -> None:
    assert TypeAdapter(Encoding).validate_python(name) == name


@pytest.mark.parametrize("name", ["base64", "rot13", "idna", "unicode_escape", "undefined", "no-such", "", "a\0b"])
def test_an_encoding_that_is_not_a_character_set_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="latin_1"):
        TypeAdapter(Encoding).validate_python(name)
