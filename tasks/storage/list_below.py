"""The files below a directory on any filesystem, each with the reason to skip it."""

from collections.abc import Iterator
from typing import NamedTuple

import fsspec

from overnight.tasks.storage.file_info import Entry, entry_of
from overnight.tasks.storage.filesystems import is_local, is_s3
from overnight.tasks.storage.globs import Pattern
from overnight.tasks.storage.huggingface import at_commit, is_hub
from overnight.tasks.storage.list_local import local_entries
from overnight.tasks.storage.skipped_files import reason_to_skip


class Listed(NamedTuple):
    """A file of a listing. `path` is relative to the root; if the root is the file (`is_root`), it is the name.

    `reason` is the reason to skip the file, or an empty string for an input.
    """

    path: str
    uri: str
    entry: Entry
    reason: str
    is_root: bool


def list_below(
    filesystem: fsspec.AbstractFileSystem, root: str, extensions: tuple[str, ...], pattern: Pattern | None = None
) -> Iterator[Listed]:
    """Yield the files below `root`, sorted by path, or `root` itself if it is a file; nothing if it does not exist.

    With `pattern`, files that do not match are left out. Raise `FileNotFoundError` for a bucket that does not exist,
    `PermissionError` for one that may not be read.
    """
    if is_hub(filesystem):
        root = at_commit(filesystem, root)
    root, is_empty = root.rstrip("/"), True
    scheme = "" if is_local(filesystem) else filesystem.unstrip_protocol(root).removesuffix(root)
    for entry in entries(filesystem, root, pattern):
        is_empty = False
        below = entry.name[len(root) :].lstrip("/")
        if entry.name.endswith("/"):
            continue  # such a name represents a directory on object stores
        if pattern and not (pattern.matches(below) or (entry.no_file and pattern.may_hold(below))):
            continue
        path = below or entry.name.rsplit("/", 1)[-1]
        yield Listed(path, scheme + entry.name, entry, reason_to_skip(path, entry, extensions, pattern), not below)
    if is_empty:
        require_bucket(filesystem, root)


def entries(filesystem: fsspec.AbstractFileSystem, root: str, pattern: Pattern | None = None) -> Iterator[Entry]:
    """Yield an `Entry` for each file below `root`, in the order of full names, or for `root` itself if it is a file.

    With `pattern`, folders in which no path can match may be left out.
    """
    if is_local(filesystem):
        return local_entries(root or "/", pattern)
    if is_s3(filesystem) and not _is_unordered(root):
        from overnight.tasks.storage.list_s3 import s3_entries  # here, because it imports s3fs

        return s3_entries(filesystem, root, pattern.beginning if pattern else "")
    return _found(filesystem, root)


def _found(filesystem: fsspec.AbstractFileSystem, root: str) -> Iterator[Entry]:
    files = filesystem.find(root, detail=True)
    if not isinstance(files, dict):  # for a file, Azure's driver (adlfs 2026.8) returns only a list with its name
        files = {name: filesystem.info(name) for name in files}
    for name, info in sorted(files.items()):
        if info.get("size") is None:  # of a web server
            info |= filesystem.info(name)
        yield entry_of(name, info)


def require_bucket(filesystem: fsspec.AbstractFileSystem, root: str) -> None:
    """Raise the store's error if the bucket of `root` is missing or forbidden."""
    if not is_local(filesystem) and not is_hub(filesystem):
        filesystem.ls(root.split("/", 1)[0])


def _is_unordered(root: str) -> bool:
    """Return True for a directory bucket (S3 Express One Zone), the one kind that S3 does not list in order."""
    return root.split("/", 1)[0].endswith("--x-s3")
