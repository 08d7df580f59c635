"""The samples of a WebDataset shard: consecutive files of a tar archive that share a name.

This file does not use units, columns or blocks.
"""

import contextlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from overnight.tasks.config.memory_bound import shortage
from overnight.tasks.errors import RowError
from overnight.tasks.ingest.source import too_large
from overnight.tasks.storage.file_info import is_text

BUFFER_BYTES = 2**20
MOST_SPARSE_BYTES = 2**28  # the holes of a file may be of any size, in an archive of a few bytes


@dataclass
class Sample:
    """Consecutive files of a tar archive that are one row. `key` is their common path, up to the first dot of the name.

    `files` maps an extension, such as `seg.png`, to the content. `damage` is the error of a bad sample, or None.
    """

    key: str
    files: dict[str, bytes] = field(default_factory=dict)
    damage: RowError | None = None


class _Member(tarfile.TarInfo):
    """A member of an archive, which raises an error for a broken header.

    tarfile itself takes a broken header after the first file for the end of the archive.
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.EmptyHeaderError:  # type: ignore[attr-defined]
            raise RowError("expected the mark that ends a tar archive, found the end of the file") from None
        except tarfile.HeaderError as error:
            raise RowError(f"expected the header of a file in a tar archive: {error}") from None


class _Ending:
    """A stream that raises an error on the second read after its end.

    tarfile would read on, a mebibyte at a time, up to the size in a header.
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self._has_ended = stream, False

    def read(self, size: int) -> bytes:
        found: bytes = self._stream.read(size)
        if not found and self._has_ended:
            raise tarfile.ReadError("unexpected end of data")
        self._has_ended = not found
        return found


def samples(stream: Any, most: int) -> Iterator[Sample]:
    """Yield the samples of `stream`, the bytes of a tar archive, and then raise `RowError` if the archive is damaged.

    The last sample before the damage is not yielded, because it may not be whole. `damage` is set in a sample of more
    than `most` bytes, with two files of one extension, or with a name that is not UTF-8.
    """
    current: Sample | None = None
    try:
        ending: Any = _Ending(stream)  # a type that tarfile's own stubs do not know
        with tarfile.open(fileobj=ending, mode="r|", bufsize=BUFFER_BYTES, tarinfo=_Member) as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # it would keep the headers of all files
                named = _key_and_extension(member.name) if member.isfile() else None
                if named is None:
                    continue
                key, extension = named
                if current is None or current.key != key:
                    if current:
                        yield current
                    current = Sample(key)
                if not is_text(member.name):
                    current.damage = RowError(f"expected file names in UTF-8, found {member.name!r}; rename the file")
                if extension in current.files:
                    current.damage = RowError(f"sample {key}: found two files named {key}.{extension}")
                if member.issparse() and member.size > MOST_SPARSE_BYTES:
                    expected = f"at most {MOST_SPARSE_BYTES:,} bytes of a file that is stored with holes"
                    current.damage = RowError(f"{key}.{extension}: expected {expected}, found {member.size:,}")
                    current.files[extension] = b""
                    continue
                size = sum(map(len, current.files.values())) + member.size
                if size > most:
                    current.damage = too_large(f"files of the sample {key}", size, most, "max_row_bytes")
                    current.files[extension] = b""
                    continue
                try:
                    current.files[extension] = _content(archive.extractfile(member), member.size)
                except MemoryError as error:
                    current.damage = RowError(f"{key}.{extension}: {shortage(error)}")
                    current.files[extension] = b""
    except (tarfile.TarError, ValueError, OverflowError) as error:  # an invalid or too large number in a header
        raise RowError(f"expected a whole tar archive: {error}") from error
    while stream.read(BUFFER_BYTES):  # to the end, where a compressed file has its check sum
        pass
    if current:
        yield current


def _content(opened: Any, size: int) -> bytes:
    """Return the content of a member. Raise `MemoryError` before it is read if its size is beyond the bound."""
    content = bytearray(size)
    view, place = memoryview(content), 0
    while place < size and (piece := opened.read(min(size - place, BUFFER_BYTES))):
        view[place : place + len(piece)] = piece
        place += len(piece)
    return bytes(view[:place])


def keys_apart(stream: Any) -> set[str]:
    """Return the samples of a tar archive whose files are not next to each other. Damage ends the search.

    These are the names that a later run of files gives a further extension. `stream` has the bytes of the archive.
    """
    extensions: dict[str, set[str]] = {}
    apart: set[str] = set()
    last = None
    ending: Any = _Ending(stream)
    with (
        contextlib.suppress(tarfile.TarError, ValueError, OverflowError, RowError),
        tarfile.open(fileobj=ending, mode="r|", bufsize=BUFFER_BYTES, tarinfo=_Member) as archive,
    ):
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]
            if named := _key_and_extension(member.name) if member.isfile() else None:
                key, extension = named
                known = extensions.setdefault(key, set())
                if known and key != last and extension not in known:
                    apart.add(key)
                known.add(extension)
                last = key
    return apart


def _key_and_extension(name: str) -> tuple[str, str] | None:
    """Return sample and extension of a name; None for files without a sample.

    `a/b.c/001.seg.png` is of the sample `a/b.c/001` and has the extension `seg.png`.
    """
    folder, slash, last = name.removeprefix("./").rpartition("/")
    stem, dot, extension = last.partition(".")
    if not stem or not dot or not extension or stem.startswith("__"):
        return None
    return f"{folder}{slash}{stem}", extension.lower()
