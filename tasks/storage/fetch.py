"""Fetches a folder or a file of any store to a local folder, in the versions that were listed.

A file is compared with the listing after it is read, and only then gets its name, so a later try fetches only the
missing files.
"""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
from fsspec.callbacks import Callback

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import JobError
from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.storage.file_info import Entry, ObjectChanged, entry_of, shown_bytes
from overnight.tasks.storage.filesystems import at_commit, entries, is_hub, require_bucket
from overnight.tasks.storage.local_file import put_on_disk, temporary_file
from overnight.tasks.storage.location import Location

LOG_EVERY_SECONDS = 10.0

Versions = Mapping[str, str]  # path -> size in bytes, a space, and the store's version of it

_log = logging.getLogger("overnight.storage")


def list_folder(location: Location) -> dict[str, str]:
    """Return path -> size and version of the files below: `{"model.bin": "350 9a0364b9"}`, without dotted names.

    Raise `FileNotFoundError`, `NotADirectoryError`, or `JobError` if the store lists no versions.
    """
    versions, is_empty = {}, True
    with translate_storage_errors("list", location):
        filesystem, root = _open(location)
        for entry in entries(filesystem, root):
            is_empty = False
            if entry.name == root:
                raise NotADirectoryError(str(location))
            path = entry.name[len(root) + 1 :]
            if not _is_skipped(path, entry):
                versions[path] = _version(entry)
        if is_empty:
            require_bucket(filesystem, root)
    if not versions:
        raise FileNotFoundError(str(location))
    _require_versions(location, versions)
    return versions


def list_file(location: Location, beside: str = "") -> dict[str, str]:
    """Return name -> size and version of the file, and of those beside it: its name, more, and the ending `beside`.

    Raise `FileNotFoundError` if there is no file, `IsADirectoryError` if `location` is a folder.
    """
    with translate_storage_errors("list", location):
        filesystem, root = _open(location)
        folder, _, name = root.rpartition("/")
        info = filesystem.info(root)
        if info["type"] == "directory":
            raise IsADirectoryError(str(location))
        versions = {name: _version(entry_of(root, info))}
        if beside:
            for entry in entries(filesystem, folder):
                path = entry.name[len(folder) :].lstrip("/")
                if path.startswith(name) and path.endswith(beside) and "/" not in path:
                    versions[path] = _version(entry)
    _require_versions(location, versions)
    return versions


def size_of(versions: Versions) -> int:
    """Return the total bytes of the files in `versions`, a result of `list_folder` or `list_file`."""
    return sum(map(_bytes, versions.values()))


def fetch(location: Location, versions: Versions, folder: Path, is_file: bool = False) -> None:
    """Fetch the files of `versions` into `folder`, unless an earlier try did, and remove all others there.

    Raise `JobError` if a file is not in its listed version, or if a name leads out of the folder.
    """
    for name in versions:
        if {"", ".", ".."} & set(name.split("/")) or "\0" in name:
            raise JobError(f"{location}: expected names inside the folder, found {name!r}. Rename the file.", "infer")
    for path in folder.rglob("*"):  # a try that was killed may leave half a file under another name
        if path.is_file() and path.relative_to(folder).as_posix() not in versions:
            path.unlink()
    progress, start = _Progress(masked(str(location)), size_of(versions)), time.monotonic()
    with translate_storage_errors("read", location, str(folder)):
        filesystem, root = _open(location)
        parent = root.rpartition("/")[0] if is_file else root
        try:
            for name, version in versions.items():
                target = folder / name
                # the folder is for these versions alone: an earlier try has fetched a file of the listed size
                if not (target.is_file() and target.stat().st_size == _bytes(version)):
                    _fetch_file(filesystem, f"{parent}/{name}", version, target, progress)
        except (ObjectChanged, FileNotFoundError) as error:
            raise JobError(
                f"{location}: its files changed after they were listed. Run again: the job then uses the new ones.",
                "infer",
            ) from error
    _log.warning("fetched %s in %.0f s", progress.name, time.monotonic() - start)


def _fetch_file(filesystem: Any, path: str, version: str, target: Path, progress: "_Progress") -> None:
    """Make the local file `target`, whole and in its listed version or not at all."""
    with temporary_file(str(target)) as temporary:
        filesystem.get_file(path, temporary.name, callback=progress)
        current = _version(entry_of(path, filesystem.info(path)))
        size = os.path.getsize(temporary.name)
        if current != version or size != _bytes(version):
            raise ObjectChanged(f"expected {version} of {path}, found {current} and {size:,} bytes")
        put_on_disk(temporary)
        os.replace(temporary.name, target)


def _open(location: Location) -> tuple[fsspec.AbstractFileSystem, str]:
    filesystem, root = location.open_filesystem()
    if is_hub(filesystem):
        root = at_commit(filesystem, root)
    return filesystem, root.rstrip("/")


def _version(entry: Entry) -> str:
    return f"{entry.size} {entry.version}"


def _bytes(version: str) -> int:
    return int(version.partition(" ")[0])


def _require_versions(location: Location, versions: Versions) -> None:
    """Raise `JobError` if the store lists no version of a file, so that a change could not be noticed."""
    for name, version in versions.items():
        if version.endswith(" "):
            raise JobError(
                f"{location}: expected a store that lists versions of its files, found none for {name}. Copy the model "
                "to an object store or to the nodes.",
                "infer",
            )


def _is_skipped(path: str, entry: Entry) -> bool:
    is_folder = not path or path.endswith("/")  # such a name represents a directory on object stores
    return is_folder or bool(entry.special_kind) or any(part.startswith(".") for part in path.split("/"))


class _Progress(Callback):
    """Logs the begin of a fetch, and the bytes so far if the last line is older than `LOG_EVERY_SECONDS`."""

    def __init__(self, name: str, total: int) -> None:
        super().__init__()
        self.name, self._total, self._logged = name, total, time.monotonic()
        _log.warning("fetching %s, %s", name, shown_bytes(total))

    def relative_update(self, inc: int = 1) -> None:
        self.value += inc  # after a retry it may exceed the total
        if time.monotonic() - self._logged >= LOG_EVERY_SECONDS:
            self._logged = time.monotonic()
            so_far = shown_bytes(min(self.value, self._total))
            _log.warning("fetching %s, %s of %s", self.name, so_far, shown_bytes(self._total))
