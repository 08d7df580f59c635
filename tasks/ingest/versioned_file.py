"""Source files in the manifest's versions: all bytes that are read belong to that version, or reading fails.

Requests to S3 contain the version (If-Match on the ETag). On other storage, the file's entry is checked after each
read, and the bytes count only if the file is still the listed one.
"""

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import fsspec
from fsspec.core import strip_protocol

from overnight.tasks.config.memory_bound import allow
from overnight.tasks.errors import InputError, RowError
from overnight.tasks.storage.file_info import ObjectChanged, TooLarge, archived, shown_version, version_of
from overnight.tasks.storage.filesystems import is_local, is_s3, is_web, open_filesystem, store_of
from overnight.tasks.storage.local_file import local_info, open_regular, refuse_others

LOOKS_AT_ONCE = 16
# bytes, of a file while it is read; more of them show that it is another than was listed
MOST_GROWTH = 2**20
BYTES_A_BLOCK = 512  # https://man7.org/linux/man-pages/man3/stat.3type.html
FOLDER = "expected a file, found a folder"


class SourceChanged(RowError):
    """The file has another version or size than the manifest lists."""


class SourceArchived(RowError):
    """The store keeps the object in an archive, from which it must be restored before it can be read."""


class SourceVanished(RowError):
    """A file of the manifest no longer exists."""


@dataclass(frozen=True)
class SourceFile:
    """A file of the manifest, which is read only in the listed version.

    If the manifest lacks them, `version` is empty and `size` (in bytes) is None. A web server has `timeout_seconds` to
    send the whole file. A changed or vanished file fails only its rows, or with `on_changed` "fail" the run.
    """

    uri: str
    version: str
    size: int | None
    anonymous: bool = False
    on_changed: Literal["quarantine", "fail"] = "quarantine"
    timeout_seconds: float | None = None

    @property
    def is_any_version(self) -> bool:
        """Return True if the manifest has neither a version nor a size to compare the file with."""
        return not self.version and self.size is None

    @cached_property
    def place(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the file's filesystem, and its path there."""
        return open_filesystem(self.uri, self.anonymous, self.timeout_seconds)

    def open(self) -> "VersionedFile":
        """Return the file, open for reading. Raise `RowError` for anything but a regular file."""
        try:
            return VersionedFile(self, self._open())
        except FileNotFoundError:
            raise self.vanished() from None
        except IsADirectoryError as error:
            raise RowError(FOLDER) from error

    def _open(self) -> Any:
        filesystem, path = self.place
        if is_local(filesystem):
            return open_regular(path)
        opened = filesystem.open(path, "rb")
        if is_s3(filesystem):
            self.look(opened.info)
        return opened

    def look(self, info: dict[str, Any] | None = None) -> None:
        """Raise `changed` or `vanished` if the file is not as listed. `info` is its current entry in the storage."""
        filesystem, path = self.place
        try:
            info = info or (local_info(path) if is_local(filesystem) else filesystem.info(path))
        except FileNotFoundError:
            raise self.vanished() from None
        if is_local(filesystem):
            refuse_others(info["type"])
        elif info.get("type") == "directory":
            raise RowError(FOLDER)
        if self.version and version_of(info) != self.version:
            raise self.changed(f"{info['size']:,} bytes, {shown_version(version_of(info))}")
        if self.size is not None and info["size"] != self.size:
            raise self.changed(f"{info['size']:,} bytes")

    def changed(self, state: str) -> Exception:
        """Return `SourceChanged`, or `InputError` with `on_changed` "fail". `state` describes what is there now."""
        description = "expected a file" if self.size is None else f"expected a file of {self.size:,} bytes"
        if self.version:
            description = f"the file changed while the run read it: {description}, {shown_version(self.version)}"
        return self._error(SourceChanged, f"{description}, as listed, found {state}")

    def vanished(self) -> Exception:
        """Return `SourceVanished`, or `InputError` with `on_changed` "fail"."""
        return self._error(SourceVanished, "expected a file, as listed, found no file any more")

    def _error(self, kind: type[RowError], sentence: str) -> Exception:
        if self.on_changed == "quarantine":
            return kind(sentence)
        return InputError(
            f"{self.uri}: {sentence}. source.on_changed is fail: put the file back, or run with force for a new list."
        )

    def checked(self, content: bytes | Exception, is_pinned: bool) -> bytes | Exception:
        """Return the content that was read, or the error if it is not of the listed version."""
        if isinstance(content, FileNotFoundError):
            return self.vanished()
        if isinstance(content, IsADirectoryError):
            return RowError(FOLDER)
        if isinstance(content, Exception) and not isinstance(content, ObjectChanged):
            reason = archived(content)
            return SourceArchived(reason) if reason else content
        try:
            if isinstance(content, Exception) or not (is_pinned or self.is_any_version):
                self.look()
        except Exception as error:
            return error
        if isinstance(content, Exception):
            return self.changed("another version")
        if self.size is not None and len(content) != self.size:
            return self.changed(f"{len(content):,} bytes")
        return content


class VersionedFile(io.RawIOBase):
    """A `SourceFile` that is open for reading: binary and seekable."""

    def __init__(self, file: SourceFile, handle: Any) -> None:
        super().__init__()
        self._file, self._opened = file, handle
        self._is_pinned = bool(getattr(handle, "etag", ""))  # each read from S3 requests this version
        if not self._is_pinned:
            file.look()
        allow(_stored(handle, handle.seek(0, io.SEEK_END)))
        handle.seek(0)

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, or all that remain, of the listed version. Raise like `SourceFile.open`."""
        start = self.tell()
        try:
            content = bytes(self._opened.read(-1 if size is None else size))
        except FileNotFoundError:
            raise self._file.vanished() from None
        except ObjectChanged:
            self._file.look()
            raise self._file.changed("another version") from None
        except Exception as error:
            if reason := archived(error):
                raise SourceArchived(reason) from None
            raise
        if not self._is_pinned:
            self._file.look()
        if self._file.size is not None:
            remaining = max(self._file.size - start, 0)
            length = remaining if size is None or size < 0 else min(size, remaining)
            if len(content) != length:
                raise self._file.changed(f"{len(content):,} bytes, expected {length:,}, from byte {start:,} on")
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._opened.seek(offset, whence))

    def tell(self) -> int:
        return int(self._opened.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._opened.close()
        super().close()


def read_whole(files: Sequence[SourceFile], most: int | None = None) -> list[bytes | Exception]:
    """Return the contents of files, in their order. An error takes the place of a content that cannot be read."""
    stores = [store_of(file.uri) for file in files]
    if len(set(stores)) > 1:
        contents_in_order: list[bytes | Exception] = [b""] * len(files)
        for store in dict.fromkeys(stores):
            rows = [row for row, own in enumerate(stores) if own == store]
            contents_of_store = read_whole([files[row] for row in rows], most)
            for row, content in zip(rows, contents_of_store, strict=True):
                contents_in_order[row] = content
        return contents_in_order
    filesystem = files[0].place[0]
    # the same paths as in `place`, in a tenth of the time
    paths = [strip_protocol(file.uri) for file in files]
    if is_local(filesystem):
        return [file.checked(_content(path, most), False) for file, path in zip(files, paths, strict=True)]
    contents: list[Any]
    if is_web(filesystem):
        from overnight.tasks.storage.web_files import read_bounded

        contents = read_bounded(filesystem, paths, most)
    else:
        allow(sum(file.size or most or 0 for file in files))
        if is_s3(filesystem):
            contents = filesystem.cat_versions(paths, [file.version for file in files], most)
            return [file.checked(content, True) for file, content in zip(files, contents, strict=True)]
        # not `cat`, which treats brackets in a file's name as a pattern
        contents = filesystem.cat_ranges(paths, None, None, on_error="return")
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        return list(pool.map(lambda file, content: file.checked(content, False), files, contents))


def _stored(handle: Any, size: int) -> int:
    """Return the bytes that a file of `size` bytes takes on its disk: holes of a local file take none."""
    try:
        return min(size, os.fstat(handle.fileno()).st_blocks * BYTES_A_BLOCK)
    except (AttributeError, OSError):  # it is not on a disk
        return size


def _content(path: str, most: int | None) -> bytes | Exception:
    """Return the content of a local file, or its error."""
    try:
        with open_regular(path) as handle:
            size = os.fstat(handle.fileno()).st_size
            if most is not None and size > most:
                return TooLarge(size)
            allow(_stored(handle, size))
            content = handle.read(size)  # not `most`: Python allocates the whole length first
            content += handle.read() if most is None else handle.read(min(most - size, MOST_GROWTH) + 1)
            return content if most is None or len(content) <= most else TooLarge(size)
    except Exception as error:
        return error
