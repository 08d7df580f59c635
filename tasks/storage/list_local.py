"""The files below a local folder, in the order of their paths. Memory holds the names of one folder at a time.

The names are sorted in Arrow: ten million names take 300 MB, and as Python strings three times that. Links are
followed, and each folder is listed once: under its own name if the listing contains it, otherwise under the first link
to it. A folder inside itself is a loop and is not listed again.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.storage.file_info import Entry, entry_of
from overnight.tasks.storage.globs import Pattern
from overnight.tasks.storage.local_file import info_of
from overnight.tasks.storage.skipped_files import is_hidden

NAMES_AT_ONCE = 2**14
NO_PERMISSION = "no permission to look"


class _Folder(NamedTuple):
    """The numbers that identify a folder on this machine."""

    device: int
    number: int


def local_entries(root: str, pattern: Pattern | None = None) -> Iterator[Entry]:
    """Yield the entries below the folder `root`, or `root` itself if it is a file; nothing if it does not exist."""
    try:
        status = os.stat(root)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode):
        walk = _Walk(root.rstrip("/"), os.path.realpath(root).rstrip("/") + "/", pattern)
        yield from walk.below(root.rstrip("/") or "/", status)
    else:
        yield from _entry(root)


@dataclass
class _Walk:
    """A listing of the folder `root`, whose path without links is `real_root`."""

    root: str
    real_root: str
    pattern: Pattern | None
    followed: set[_Folder] = field(default_factory=set)  # the folders that links have led to so far

    def below(
        self,
        folder: str,
        status: os.stat_result,
        above: tuple[_Folder, ...] = (),
        real: str = "",
        is_link: bool = False,
    ) -> Iterator[Entry]:
        """Yield the entries below a folder. `real` is its path without links if a link led to it, otherwise empty."""
        identity = _Folder(status.st_dev, status.st_ino)
        if identity in above:
            yield _skipped(folder, "loop of links")
            return
        if is_link and identity in self.followed:
            yield _skipped(folder, "link to a folder that another link leads to")
            return
        if is_link:
            self.followed.add(identity)
        try:
            names = _sorted_names(folder)
        except (FileNotFoundError, NotADirectoryError):  # removed after its parent folder was listed
            return
        except PermissionError:
            yield _skipped(folder, NO_PERMISSION)
            return
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            if name.endswith("/"):
                yield from self._folder(path[:-1], (*above, identity), real and f"{real}/{name[:-1]}")
            elif real and self._is_listed(f"{real}/{name}"):
                yield _skipped(path, "file that is listed without this link")
            else:
                yield from _entry(path)

    def _folder(self, path: str, above: tuple[_Folder, ...], real: str) -> Iterator[Entry]:
        if self.pattern and not self.pattern.may_hold(path[len(self.root) + 1 :]):
            return
        try:
            status = os.stat(path)
        except OSError as error:
            yield from _unreachable(path, error)
            return
        is_link = os.path.islink(path)
        if is_link:
            real = os.path.realpath(path)
        yield from self.below(path, status, above, real, is_link)

    def _is_listed(self, real_path: str) -> bool:
        """Return True if the listing contains the file under its path without links."""
        below = real_path.removeprefix(self.real_root)
        if below == real_path or is_hidden(below, self.pattern):
            return False
        return self.pattern is None or self.pattern.matches(below)


def _entry(path: str) -> Iterator[Entry]:
    """Yield a file, with size and version of the link's target. Yield nothing if it is gone."""
    try:
        status = os.lstat(path)
        info = info_of(status)
        if stat.S_ISLNK(status.st_mode):
            info = info_of(os.stat(path))
    except OSError as error:
        yield from _unreachable(path, error)
        return
    info["created"] = max(info["created"], status.st_ctime)  # the link may be newer than its target
    entry = entry_of(path, info)
    yield entry if info["type"] == "file" else entry._replace(special_kind=info["type"])


def _unreachable(path: str, error: OSError) -> Iterator[Entry]:
    """Yield an entry for a path that exists but cannot be read. Raise errors that are not about this path alone."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if os.path.islink(path):
            yield _skipped(path, "link to nothing")
    elif error.errno == errno.ELOOP:
        yield _skipped(path, "link that leads to itself")
    elif isinstance(error, PermissionError):
        yield _skipped(path, NO_PERMISSION)
    else:
        raise error


def _skipped(path: str, reason: str) -> Entry:
    return Entry(path, 0, "", None, reason)


def _sorted_names(folder: str) -> Iterator[str]:
    """Yield the names in a folder in order. A folder's name ends with a slash, so that whole paths come in order."""
    chunks, names = [], list[bytes]()
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name + "/" if _is_folder(entry) else entry.name
            names.append(os.fsencode(name))
            if len(names) == NAMES_AT_ONCE:
                chunks.append(pa.array(names, pa.large_binary()))
                names = []
    chunks.append(pa.array(names, pa.large_binary()))
    return _in_order(pa.chunked_array(chunks).combine_chunks())


def _in_order(names: pa.Array) -> Iterator[str]:
    order = pc.sort_indices(names)
    for start in range(0, len(order), NAMES_AT_ONCE):
        yield from map(os.fsdecode, names.take(order[start : start + NAMES_AT_ONCE]).to_pylist())


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Return True for a folder and for a link to one. A broken link is not a folder."""
    try:
        return entry.is_dir()
    except OSError:
        return False
