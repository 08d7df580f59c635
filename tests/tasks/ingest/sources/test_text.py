"""Text files: a row each, in the encoding that the job names."""

import gzip
import random
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from overnight.tasks.ingest.sources.text import Text
from tests.tasks.ingest.conftest import Read, assert_broken


def test_a_text_is_its_file_named_by_its_path_and_labelled_by_its_folder(read: Callable[..., Read]) -> None:
    files = {"good/a.TXT": b"one\ntwo", "bad/b.md": b"", "c/d.png": b"no text"}
    found = read(Text, files, label_from="parent")
    assert {name: (row["text"], row["label"]) for name, row in found.good.items()} == {
        "good/a.TXT": ("one\ntwo", "good"),
        "bad/b.md": ("", "bad"),
    }


def test_a_byte_order_mark_is_no_part_of_the_text(read: Callable[..., Read]) -> None:
    files = {"a.txt": "\ufeffgrüße".encode(), "b.txt": "grüße".encode()}
    assert read(Text, files).column("text") == ["grüße", "grüße"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252", "shift_jis"])
def test_texts_come_in_the_encoding_that_is_named(read: Callable[..., Read], encoding: str) -> None:
    text = "日本" if encoding == "shift_jis" else "grüße"
    assert read(Text, {"a.txt": text.encode(encoding)}, encoding=encoding).column("text") == [text]


NO_TEXTS = {
    "latin-1.txt": ("grüße".encode("latin-1"), 0, "expected text in utf-8, found b'\\xfc\\xdfe' at byte 2: invalid"),
    "utf-16.txt": ("grüße".encode("utf-16"), 0, "found b'\\xff\\xfeg\\x00r"),
    "utf-32.txt": ("grüße".encode("utf-32"), 0, "found b'\\xff\\xfe\\x00\\x00g\\x00"),
    "shift-jis.txt": ("日本".encode("shift_jis"), 0, "found b'\\x93\\xfa\\x96{' at byte 0"),
    "cut.txt": ("well, größe".encode()[:9], 0, "found b'\\xc3' at byte 8: unexpected end of data"),
    "surrogate.txt": (b"a\xed\xa0\x80", 0, "found b'\\xed\\xa0\\x80' at byte 1: invalid continuation byte"),
    "overlong.txt": (b"\xc0\xaf", 0, "found b'\\xc0\\xaf' at byte 0: invalid start byte"),
    "beyond-unicode.txt": (b"\xf4\x90\x80\x80", 0, "found b'\\xf4\\x90\\x80\\x80' at byte 0"),
    "random.md": (random.Random(0).randbytes(1000), 0, "at byte 0"),
    "packed.xml": (gzip.compress(b"well", mtime=0), 0, "found b'\\x8b\\x08\\x00"),
    "picture.html": (b"\x89PNG\r\n\x1a\n", 0, "found b'\\x89PNG\\r\\n\\x1a\\n' at byte 0"),
    "paper.tex": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", 0, "found b'\\xe2\\xe3\\xcf\\xd3\\n' at byte 10"),
    "document.rst": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0, "It is not text, or in another encoding"),
}


def test_a_file_that_is_no_text_in_the_encoding_is_quarantined_alone_with_the_reason(read: Callable[..., Read]) -> None:
    found = read(Text, {**{name: content for name, (content, *_) in NO_TEXTS.items()}, "a.txt": b"well"})
    assert_broken(found, NO_TEXTS)
    assert found.column("text") == ["well"]
    assert set(found.types.values()) == {"UnicodeDecodeError"}


def test_a_file_that_is_no_text_in_an_encoding_of_the_job_s_own_is_quarantined_alone(read: Callable[..., Read]) -> None:
    found = read(Text, {"a.txt": "grüße".encode("utf-16"), "b.txt": b"\xff\xfea\0b"}, encoding="utf-16")
    assert found.column("text") == ["grüße"]
    assert "expected text in utf-16, found b'b' at byte 4: truncated data" in found.bad["b.txt"]


@pytest.mark.parametrize("encoding", ["utf-9", "base64", "rot13", "hex", "zlib", "idna", "unicode_escape", "a\0"])
def test_an_encoding_of_no_text_is_refused_with_those_that_are_meant(encoding: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Text(path="x", encoding=encoding)
    told = str(refused.value)
    assert f"found {encoding!r}" in told
    assert all(name in told for name in ("cp1252", "gb18030", "latin_1", "shift_jis", "utf_16", "utf_8", "utf_8_sig"))
    assert "base64_codec" not in told


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf-8-sig", "latin-1", "koi8-r", "cp1252", "big5"])
def test_character_sets_are_encodings_by_any_of_their_names(encoding: str) -> None:
    assert Text(path="x", encoding=encoding).encoding == encoding
