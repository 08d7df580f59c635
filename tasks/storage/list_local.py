"""The files below a local folder, in the order of their paths. Memory holds the names of one folder at a time.

The names are sorted in Arrow: ten million names take 300 MB, and as Python strings three times that.

Links are followed, and each folder is listed once: under its own name if the listing contains it, otherwise under the
first link to it. A folder inside itself is a loop and is not listed again.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
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
    """Yield the entries below the folder `root`, or `root` itself if it is a file. Yield nothing if it does not exist.

    Folders in which no path can match `pattern` are not opened.
    """
    try:
        found = os.stat(root)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        base = root.rstrip("/")

        def is_wanted(folder: str) -> bool:
            return pattern is None or pattern.may_hold(folder[len(base) + 1 :])

        own = os.path.realpath(root).rstrip("/") + "/"

        def is_listed(path: str) -> bool:
            below = path.removeprefix(own)
            return below != path and not is_hidden(below, pattern) and (pattern is None or pattern.matches(below))

        yield from _below(base or "/", found, (), set(), is_wanted, is_listed)
    else:
        yield from _entry(root)


def _below(
    folder: str,
    found: os.stat_result,
    above: tuple[_Folder, ...],
    followed: set[_Folder],
    is_wanted: Callable[[str], bool],
    is_listed: Callable[[str], bool],
    real: str = "",
    is_linked: bool = False,
) -> Iterator[Entry]:
    """Yield the entries below one folder.

    `found` is the folder's stat result, `above` are its parent folders, and `followed` are the folders that links have
    led to so far. `is_wanted` is called with the path of each folder inside, which is left out if it returns False.

    If a link led to the folder or to one above it, `real` is the folder's path without links, otherwise it is empty.
    Then `is_listed` is called with such a path of each file, and returns True if the file is listed under this path.
    """
    here = _Folder(found.st_dev, found.st_ino)
    if here in above:
        yield _passed(folder, "loop of links")
        return
    if is_linked and here in followed:
        yield _passed(folder, "link to a folder that another link leads to")
        return
    if is_linked:
        followed.add(here)
    try:
        names = _sorted_names(folder)
    except (FileNotFoundError, NotADirectoryError):  # removed after its parent folder was listed
        return
    except PermissionError:
        yield _passed(folder, NO_PERMISSION)
        return
    start = f"{folder.rstrip('/')}/"
    for name in names:
        path = start + name
        if not name.endswith("/"):
            is_twice = real and is_listed(f"{real}/{name}")
            yield from (_passed(path, "file that is listed without this link"),) if is_twice else _entry(path)
            continue
        path = path[:-1]
        if not is_wanted(path):
            continue
        try:
            inner = os.stat(path)
        except OSError as error:
            yield from _unreachable(path, error)
            continue
        is_link = os.path.islink(path)
        real_path = os.path.realpath(path) if is_link else real and f"{real}/{name[:-1]}"
        yield from _below(path, inner, (*above, here), followed, is_wanted, is_listed, real_path, is_link)


def _entry(path: str) -> Iterator[Entry]:
    """Yield a file, with size and version of the link's target. Yield nothing if it is gone."""
    try:
        itself = os.lstat(path)
        info = info_of(os.stat(path) if stat.S_ISLNK(itself.st_mode) else itself)
    except OSError as error:
        yield from _unreachable(path, error)
        return
    came = max(info["created"], itself.st_ctime)  # the link may be newer than its target
    entry = entry_of(path, info | {"created": came})
    yield entry if info["type"] == "file" else entry._replace(no_file=info["type"])


def _unreachable(path: str, error: OSError) -> Iterator[Entry]:
    """Yield an entry for a path that exists but cannot be read. Raise errors that are not about this path alone."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if os.path.islink(path):
            yield _passed(path, "link to nothing")
    elif error.errno == errno.ELOOP:
        yield _passed(path, "link that leads to itself")
    elif isinstance(error, PermissionError):
        yield _passed(path, NO_PERMISSION)
    else:
        raise error


def _passed(path: str, reason: str) -> Entry:
    return Entry(path, 0, "", None, reason)


def _sorted_names(folder: str) -> Iterator[str]:
    """Yield the names in a folder in order. A folder's name ends with a slash, so that whole paths come in order."""
    with os.scandir(folder) as found:
        names = (entry.name + "/" if _is_folder(entry) else entry.name for entry in found)
        chunks = [
            pa.array(map(os.fsencode, some), pa.large_binary())
            for some in iter(lambda: list(islice(names, NAMES_AT_ONCE)), [])
        ]
    return _in_order(pa.chunked_array(chunks, pa.large_binary()).combine_chunks())


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
