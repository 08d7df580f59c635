"""The entries below a directory on any filesystem."""

from collections.abc import Iterator

import fsspec

from overnight.tasks.storage.file_info import Entry, entry_of
from overnight.tasks.storage.filesystems import is_local, is_s3
from overnight.tasks.storage.globs import Pattern
from overnight.tasks.storage.huggingface import is_hub
from overnight.tasks.storage.list_local import local_entries


def entries(filesystem: fsspec.AbstractFileSystem, root: str, pattern: Pattern | None = None) -> Iterator[Entry]:
    """Yield an `Entry` for each file below `root`, in the order of full names, or for `root` itself if it is a file."""
    if is_local(filesystem):
        return local_entries(root or "/", pattern)
    # S3 does not list a directory bucket (S3 Express One Zone) in order.
    if is_s3(filesystem) and not root.split("/", 1)[0].endswith("--x-s3"):
        from overnight.tasks.storage.list_s3 import s3_entries  # here, because it imports s3fs

        return s3_entries(filesystem, root, pattern.beginning if pattern else "")
    return _found(filesystem, root)


def _found(filesystem: fsspec.AbstractFileSystem, root: str) -> Iterator[Entry]:
    files = filesystem.find(root, detail=True)
    if not isinstance(files, dict):  # for a file, Azure's driver (adlfs 2026.8) returns only a list with its name
        files = {name: filesystem.info(name) for name in files}
    for name, info in sorted(files.items()):
        if info.get("size") is None:  # of a web server
            info.update(filesystem.info(name))
        yield entry_of(name, info)


def require_bucket(filesystem: fsspec.AbstractFileSystem, root: str) -> None:
    """Raise the store's error if the bucket of `root` is missing or forbidden."""
    if not is_local(filesystem) and not is_hub(filesystem):
        filesystem.ls(root.split("/", 1)[0])
