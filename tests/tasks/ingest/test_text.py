"""Text files: a row each, in the encoding that the job names."""

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from tasks.ingest.text import Text
from tests.tasks.ingest.conftest import Read


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


def test_a_file_in_another_encoding_is_quarantined_alone(read: Callable[..., Read]) -> None:
    found = read(Text, {"a.txt": b"well", "b.txt": "grüße".encode("latin-1"), "c.txt": b"\xff\xfe", "d.txt": b"too"})
    assert found.column("text") == ["well", "too"]
    assert found.types == {"b.txt": "UnicodeDecodeError", "c.txt": "UnicodeDecodeError"}
    assert found.bad["b.txt"] == "expected text in utf-8, found byte 2: invalid start byte"


def test_an_encoding_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValidationError, match="expected an encoding that Python knows, found 'utf-9'"):
        Text(path="x", encoding="utf-9")
