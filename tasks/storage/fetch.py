"""Fetches a folder or a file of any store to a local folder, in the versions that were listed.

From S3, threads read pieces of the listed ETag. Files of other stores are compared with the listing after they are
read. Each file gets its final name when it is complete, so a later try fetches only the missing files.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import fsspec

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import JobError
from overnight.tasks.storage.atomic_write import put_on_disk, temporary_file
from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.storage.file_info import Entry, ObjectChanged, entry_of, shown_bytes
from overnight.tasks.storage.filesystems import entries, is_local, is_s3
from overnight.tasks.storage.huggingface import at_commit, is_hub
from overnight.tasks.storage.location import Location

PIECE_BYTES = 32 * 2**20
PIECES_AT_ONCE = 8
LOG_EVERY_SECONDS = 10.0

Versions = Mapping[str, str]  # path -> size in bytes, a space, and the store's version of it

_log = logging.getLogger("overnight.storage")


def list_folder(place: Location) -> dict[str, str]:
    """Return a mapping from the path of each file below `place` to a text with its size in bytes and its version.

    Paths are relative to `place`, as in `{"model.bin": "350 9a0364b9e99bb480dd25e1f0284c8555"}`. Files and folders
    whose names begin with a dot are skipped.

    Raise `FileNotFoundError` if there is no file, and `NotADirectoryError` if `place` is a file. Raise `JobError` if
    the store lists no versions. Raise `AccessDenied` and `ServiceUnavailable` for the store's errors.
    """
    with translate_storage_errors("list", place):
        filesystem, root = _opened(place)
        found = {entry.name[len(root) :]: entry for entry in entries(filesystem, root)}
        if "" in found:
            raise NotADirectoryError(str(place))
        if not found and not is_local(filesystem) and not is_hub(filesystem):
            filesystem.ls(root.split("/", 1)[0])  # raises if the bucket is missing or forbidden
    listed = {path[1:]: _version(entry) for path, entry in found.items() if not _is_skipped(path[1:], entry)}
    if not listed:
        raise FileNotFoundError(str(place))
    _require_versions(place, listed)
    return listed


def list_file(place: Location, beside: str = "") -> dict[str, str]:
    """Return a mapping from the name of the file at `place` to a text with its size in bytes and its version.

    For example, `{"model.onnx": "350 9a0364b9e99bb480dd25e1f0284c8555"}`. If `beside` is not empty, add the files in
    the same folder whose names begin with this name and end with `beside`.

    Raise `FileNotFoundError` if there is no file, and `IsADirectoryError` if `place` is a folder. Raise `JobError` if
    the store lists no versions. Raise `AccessDenied` and `ServiceUnavailable` for the store's errors.
    """
    with translate_storage_errors("list", place):
        filesystem, root = _opened(place)
        folder, _, name = root.rpartition("/")
        info = filesystem.info(root)
        if info["type"] == "directory":
            raise IsADirectoryError(str(place))
        listed = {name: _version(entry_of(root, info))}
        for entry in entries(filesystem, folder) if beside else ():
            other = entry.name[len(folder) :].lstrip("/")
            if other.startswith(name) and other.endswith(beside) and "/" not in other:
                listed[other] = _version(entry)
    _require_versions(place, listed)
    return listed


def size_of(versions: Versions) -> int:
    """Return the total bytes of the files in `versions`, a result of `list_folder` or `list_file`."""
    return sum(int(version.split(" ", 1)[0]) for version in versions.values())


def fetch(place: Location, versions: Versions, folder: Path, is_file: bool = False) -> None:
    """Fetch the files of `versions` into `folder`. Keep complete files of an earlier try, and remove all others there.

    `versions` is the result of `list_folder`, or with `is_file` that of `list_file`, for the same `place`.

    Raise `JobError` if a file is not in its listed version, or if a name leads out of the folder. Raise `AccessDenied`
    and `ServiceUnavailable` for the errors of the store and of the disk.
    """
    if unsafe := [name for name in versions if not _is_inside(name)]:
        raise JobError(f"{place}: expected names inside the folder, found {unsafe[0]!r}. Rename the file.", "infer")
    for path in folder.rglob("*"):  # a try that was killed may leave half a file under another name
        if path.is_file() and path.relative_to(folder).as_posix() not in versions:
            path.unlink()
    progress = _Progress(str(place), size_of(versions))
    with translate_storage_errors("read", place, str(folder)):
        filesystem, root = _opened(place)
        above = root.rpartition("/")[0] if is_file else root
        get = _get_pieces if is_s3(filesystem) else _get_whole
        try:
            for name, listed in versions.items():
                target = folder / name
                if not (target.is_file() and f"{target.stat().st_size} " == listed[: listed.index(" ") + 1]):
                    with temporary_file(str(target)) as temporary:
                        get(filesystem, f"{above}/{name}", listed, temporary, progress.add)
                        put_on_disk(temporary)
                        os.replace(temporary.name, target)
        except (ObjectChanged, FileNotFoundError) as error:
            raise JobError(
                f"{place}: its files changed after they were listed. Run again: the job then uses the new ones.",
                "infer",
            ) from error
    progress.end()


def _opened(place: Location) -> tuple[fsspec.AbstractFileSystem, str]:
    filesystem, root = place.open_filesystem()
    return filesystem, (at_commit(filesystem, root) if is_hub(filesystem) else root).rstrip("/")


def _version(entry: Entry) -> str:
    return f"{entry.size} {entry.version}"


def _require_versions(place: Location, listed: Versions) -> None:
    """Raise `JobError` if the store lists no version of a file, so that a change could not be noticed."""
    if unknown := [name for name, version in listed.items() if version.endswith(" ")]:
        raise JobError(
            f"{place}: expected a store that lists versions of its files, found none for {unknown[0]}. Copy the model "
            "to an object store or to the nodes.",
            "infer",
        )


def _is_skipped(path: str, entry: Entry) -> bool:
    is_folder = not path or path.endswith("/")  # such a name represents a directory on object stores
    return is_folder or bool(entry.no_file) or any(part.startswith(".") for part in path.split("/"))


def _is_inside(name: str) -> bool:
    return not {"", ".", ".."} & set(name.split("/")) and "\0" not in name


def _get_pieces(filesystem: Any, path: str, listed: str, file: BinaryIO, add: Callable[[int], None]) -> None:
    """Fill `file` with the listed version of an object of S3."""
    bucket, key, _ = filesystem.split_path(path)
    size, version = listed.split(" ", 1)

    def get(start: int) -> None:
        stop = min(start + PIECE_BYTES, int(size))
        content = filesystem.bucket(bucket).get(key, version, start, stop)
        if len(content) != stop - start:
            raise ObjectChanged(f"expected {stop - start:,} bytes of {key} from {start:,} on, found {len(content):,}")
        os.pwrite(file.fileno(), content, start)
        add(len(content))

    with ThreadPoolExecutor(PIECES_AT_ONCE) as pool:
        list(pool.map(get, range(0, int(size), PIECE_BYTES)))


def _get_whole(filesystem: Any, path: str, listed: str, file: BinaryIO, add: Callable[[int], None]) -> None:
    """Fill `file` from a store that reads only the newest version, and compare it with the listed one."""
    filesystem.get_file(path, file.name)
    now = _version(entry_of(path, filesystem.info(path)))
    found = os.path.getsize(file.name)
    if now != listed or found != int(listed.split(" ", 1)[0]):
        raise ObjectChanged(f"expected {listed} of {path}, found {now} and {found:,} bytes")
    add(found)


class _Progress:
    """The log lines of one fetch: its beginning, the bytes so far, and its end."""

    def __init__(self, place: str, size: int) -> None:
        self._place, self._size, self._done = masked(place), size, 0
        self._started = self._logged = time.monotonic()
        self._lock = threading.Lock()
        _log.warning("fetching %s, %s", self._place, shown_bytes(size))

    def add(self, count: int) -> None:
        """Count bytes, from any thread. Log a line if the last one is older than `LOG_EVERY_SECONDS`."""
        with self._lock:
            self._done += count
            if time.monotonic() - self._logged < LOG_EVERY_SECONDS:
                return
            self._logged = time.monotonic()
        _log.warning("fetching %s, %s of %s", self._place, shown_bytes(self._done), shown_bytes(self._size))

    def end(self) -> None:
        _log.warning("fetched %s in %.0f s", self._place, time.monotonic() - self._started)
