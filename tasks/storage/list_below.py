"""The files below a place on any filesystem, each with the reason to skip it."""

from collections.abc import Iterator
from typing import NamedTuple

import fsspec

from overnight.tasks.storage.file_info import Entry
from overnight.tasks.storage.filesystems import entries, is_local
from overnight.tasks.storage.globs import Pattern
from overnight.tasks.storage.huggingface import at_commit, is_hub
from overnight.tasks.storage.skipped_files import reason_to_skip


class Listed(NamedTuple):
    """A file of a listing. `path` is relative to the listed place; if the place is a file (`is_place`), it is the name.

    `reason` is the reason to skip the file, or an empty string for an input.
    """

    path: str
    uri: str
    entry: Entry
    reason: str
    is_place: bool


def list_below(
    filesystem: fsspec.AbstractFileSystem, root: str, extensions: tuple[str, ...], pattern: Pattern | None = None
) -> Iterator[Listed]:
    """Yield the files below `root`, sorted by path, or `root` itself if it is a file; nothing if it does not exist.

    A file with a name that ends in none of `extensions` has a reason to skip it, unless there are no extensions. With
    `pattern`, files that do not match are left out. Raise `FileNotFoundError` for a bucket that does not exist,
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
    if is_empty and not is_local(filesystem) and not is_hub(filesystem):
        filesystem.ls(root.split("/", 1)[0])  # raises if the bucket is missing or forbidden
