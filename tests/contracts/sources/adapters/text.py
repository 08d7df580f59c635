"""Text files, which Python writes as bytes and reads as texts."""

import gzip
from pathlib import Path

from overnight.tasks.ingest.sources.text import Text
from tests.contracts.sources.adapter import ROWS, Damage
from tests.contracts.sources.whole_files import HOLE, WholeFilesAdapter
from tests.tasks.ingest.conftest import rewritten

NO_TEXTS = {
    "Latin-1": ("grüße".encode("latin-1"), "expected text in utf-8, found b'\\xfc\\xdfe' at byte 2: invalid"),
    "UTF-16": ("grüße".encode("utf-16"), "found b'\\xff\\xfeg\\x00r"),
    "cut": ("well, größe".encode()[:9], "found b'\\xc3' at byte 8: unexpected end of data"),
    "half a surrogate": (b"a\xed\xa0\x80", "found b'\\xed\\xa0\\x80' at byte 1: invalid continuation byte"),
    "packed": (gzip.compress(b"well", mtime=0), "found b'\\x8b\\x08\\x00"),
    "a PDF file": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "It is not text, or in another encoding"),
}


class TextFiles(WholeFilesAdapter):
    kind = "text"
    leaf = Text
    extension = ".txt"
    texts = ("", "one\r\ntwo\n", "\ufeffgrüße", "é 🦉", "\0", "NaN", " a ", "\u3000")
    contents = tuple(map(str.encode, texts))
    damages = {
        name: Damage(rewritten(lambda _, content=content: content), words, range(1, ROWS))
        for name, (content, words) in NO_TEXTS.items()
    } | {"too large": HOLE}

    def value(self, path: Path) -> object:
        return path.read_bytes().decode("utf-8-sig")
