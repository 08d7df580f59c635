"""Compare WebDataset's shards with Python's `tarfile`: files with the same name up to the first dot are a sample."""

import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import ours
from judging import Refused, unlike
from kind import Kind, ends_in

from overnight.tasks.ingest.sources.webdataset import WebDataset


def read(path: Path) -> list[Any]:
    """Return the samples, as the bytes of their files by extension."""
    rows = ours.values(WebDataset, path)
    return [row if isinstance(row, Refused) else _present(row) for row in rows]


def by_tarfile(path: Path) -> Iterator[dict[str, bytes | str]]:
    """Yield the samples."""
    with tarfile.open(path) as archive:
        files = [(*_split(member.name), member) for member in archive if member.isfile() and _split(member.name)[1]]
        for key, some in groupby(files, key=lambda file: file[0]):
            yield {"key": key} | {extension: archive.extractfile(member).read() for _, extension, member in some}  # type: ignore[union-attr]


def differs(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """Return how the samples differ, after the bytes are read as texts and numbers."""
    expected = {name: _as(mine.get(name), value) for name, value in other.items()}
    return unlike(dict(sorted(mine.items())), dict(sorted(expected.items())))


def _as(value: Any, content: Any) -> Any:
    if isinstance(content, bytes) and isinstance(value, str):
        return content.decode()
    return int(content) if isinstance(value, int) else content


def _present(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _split(name: str) -> tuple[str, str]:
    folder, slash, last = name.removeprefix("./").rpartition("/")
    stem, _, extension = last.partition(".")
    return f"{folder}{slash}{stem}", extension.lower() if stem and not stem.startswith("__") else ""


KIND = Kind("WebDataset shards", ("webdataset/testdata",), ends_in(*WebDataset.extensions), read, by_tarfile, differs)
