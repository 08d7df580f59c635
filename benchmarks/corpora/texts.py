"""Compare texts with Python's `open`. The folder's name is the encoding, and perhaps a language after it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ours
from kind import Kind, ends_in

from overnight.tasks.ingest.formats.text_encoding import is_of_text
from overnight.tasks.ingest.sources.text import Text


def read(path: Path) -> list[Any]:
    """Return the text."""
    return ours.values(Text, path, encoding=str(encoding_of(path)))


def by_open(path: Path) -> Iterator[dict[str, str]]:
    """Yield the text as it is, without a byte order mark, as a row."""
    encoding = str(encoding_of(path))
    with path.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as file:
        yield {"text": file.read()}


def encoding_of(path: Path) -> str | None:
    """Return the encoding that the folder names, if Python knows it."""
    name = re.sub(r"-[a-z]{4,}$", "", path.parent.name)
    return next((one for one in (path.parent.name, name) if is_of_text(one)), None)


def _is_ours(path: Path) -> bool:
    return ends_in(*Text.extensions)(path) and encoding_of(path) is not None


KIND = Kind("texts", ("chardet/tests",), _is_ours, read, by_open)
