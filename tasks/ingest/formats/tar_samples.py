"""The samples of a WebDataset shard: consecutive files of a tar archive that share a name."""

import contextlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from overnight.tasks.config.memory_bound import shortage
from overnight.tasks.errors import RowError
from overnight.tasks.ingest.reading.file_errors import too_large
from overnight.tasks.storage.file_info import is_text

BUFFER_BYTES = 2**20


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
        content: bytes = self._stream.read(size)
        if not content and self._has_ended:
            raise tarfile.ReadError("unexpected end of data")
        self._has_ended = not content
        return content


def samples(stream: Any, most: int) -> Iterator[Sample]:
    """Yield the samples of a tar archive, bad ones with their `damage`. Raise `RowError` if the archive is damaged."""
    current: Sample | None = None
    try:
        for archive, member, key, extension in _members(stream):
            if current is None or current.key != key:
                if current:
                    yield current
                current = Sample(key)
            _add(current, archive, member, extension, most)
    except (tarfile.TarError, ValueError, OverflowError) as error:  # an invalid or too large number in a header
        raise RowError(f"expected a whole tar archive: {error}") from error
    while stream.read(BUFFER_BYTES):  # to the end, where a compressed file has its check sum
        pass
    if current:
        yield current


def _members(stream: Any) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo, str, str]]:
    """Yield the files of an archive, with the sample and the extension of each."""
    ending: Any = _Ending(stream)  # a type that tarfile's own stubs do not know
    with tarfile.open(fileobj=ending, mode="r|", bufsize=BUFFER_BYTES, tarinfo=_Member) as archive:
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # it would keep the headers of all files
            key, extension = _key_and_extension(member.name)
            if key and extension and member.isfile():
                yield archive, member, key, extension


def _add(sample: Sample, archive: tarfile.TarFile, member: tarfile.TarInfo, extension: str, most: int) -> None:
    if not is_text(member.name):
        sample.damage = RowError(f"expected file names in UTF-8, found {member.name!r}; rename the file")
    if extension in sample.files:
        sample.damage = RowError(f"sample {sample.key}: found two files named {sample.key}.{extension}")
    size = sum(map(len, sample.files.values())) + member.size
    sample.files[extension] = b""
    if size > most:
        sample.damage = too_large(f"files of the sample {sample.key}", size, most, "max_row_bytes")
        return
    try:
        sample.files[extension] = _content(archive.extractfile(member), member.size)
    except MemoryError as error:
        sample.damage = RowError(f"{sample.key}.{extension}: {shortage(error)}")


def _content(handle: Any, size: int) -> bytes:
    """Return the content of a member. Raise `MemoryError` before it is read, so that the stream can be read on."""
    content = bytearray(size)
    view, count = memoryview(content), 0
    while count < size and (piece := handle.read(min(size - count, BUFFER_BYTES))):
        view[count : count + len(piece)] = piece
        count += len(piece)
    return bytes(view[:count])


def keys_apart(stream: Any) -> set[str]:
    """Return the samples of a tar archive to which a later run of files adds an extension. Damage ends the search."""
    extensions: dict[str, set[str]] = {}
    apart: set[str] = set()
    last = None
    with contextlib.suppress(tarfile.TarError, ValueError, OverflowError, RowError):
        for _, _, key, extension in _members(stream):
            earlier = extensions.setdefault(key, set())
            if earlier and key != last and extension not in earlier:
                apart.add(key)
            earlier.add(extension)
            last = key
    return apart


def _key_and_extension(name: str) -> tuple[str, str]:
    """Return sample and extension of a name: `a/b.c/001` and `seg.png` of `a/b.c/001.seg.png`. Either may be empty."""
    folder, slash, last = name.removeprefix("./").rpartition("/")
    stem, _, extension = last.partition(".")
    key = f"{folder}{slash}{stem}" if stem and not stem.startswith("__") else ""
    return key, extension.lower()
