"""Reads real files with a source as the read does, and holds it to its contract."""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.ingest.source import Source
from tests.contracts.sources.reading import Read, read_all


def overwritten(content: bytes, first: int, stop: int | None) -> bytes:
    """`content` with other bytes from `first` to `stop`; negative places count from its end."""
    first, stop, _ = slice(first, stop).indices(len(content))
    return content[:first] + b"\xab" * (stop - first) + content[stop:]


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".nowhere"))


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """What changes a file's bytes in place."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


# What becomes of a table's data file behind the table's back, so that it is of another size than the table says.
RESIZED: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (rewritten(lambda content: b""), "bytes, as listed, found 0 bytes"),
    "cut at its end": (rewritten(lambda content: content[:-9]), "bytes, as listed, found "),
    "grown": (rewritten(lambda content: content + b"more"), "bytes, as listed, found "),
    "gone": (Path.unlink, "expected a file, as listed, found no file any more"),
    "a link to nowhere": (_as_link, "expected a file, as listed, found no file any more"),
    "a folder": (_as_folder, "expected a file, found a folder"),
}


@pytest.fixture
def bucket(s3: Any) -> str:
    """The name of an empty bucket."""
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    """Writes files (name -> bytes) and reads them with the source of that kind and those settings."""

    def written_and_read(kind: type[Source], files: Mapping[str, bytes], **settings: Any) -> Read:
        for name, content in files.items():
            path = tmp_path / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return read_all(kind(path=str(tmp_path / "source"), **settings))

    return written_and_read
