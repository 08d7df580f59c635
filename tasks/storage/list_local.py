"""The files below a local folder, in the order of their paths, without holding more than a folder's names.

They are sorted in Arrow, where ten million names are 300 MB; as Python strings they would be three times that.

Links are followed. A folder is walked under its own name, and besides once by way of links, the first that leads to it;
a folder that is met again inside itself is a loop, and is not walked again.
"""

import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.storage.file_info import Entry, entry_of
from overnight.tasks.storage.local_file import info_of

NAMES_AT_ONCE = 2**14
NO_PERMISSION = "no permission to look"


class _Folder(NamedTuple):
    """What tells a folder from every other of the machine."""

    device: int
    number: int


def local_entries(root: str) -> Iterator[Entry]:
    """What lies below the folder `root`, or `root` itself where that is a file; nothing where there is none."""
    try:
        found = os.stat(root)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        yield from _below(root, found, (), set())
    else:
        yield from _entry(root)


def _below(
    folder: str, found: os.stat_result, above: tuple[_Folder, ...], followed: set[_Folder], is_linked: bool = False
) -> Iterator[Entry]:
    """`found`: of the folder; `above`: those that it lies in; `followed`: those that links have led to so far."""
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
    except (FileNotFoundError, NotADirectoryError):  # gone since its own folder was looked into
        return
    except PermissionError:
        yield _passed(folder, NO_PERMISSION)
        return
    for name in names:
        path = f"{folder}/{name}"
        if not name.endswith("/"):
            yield from _entry(path)
            continue
        path = path[:-1]
        try:
            inner = os.stat(path)
        except OSError as error:
            yield from _unreachable(path, error)
            continue
        yield from _below(path, inner, (*above, here), followed, os.path.islink(path))


def _entry(path: str) -> Iterator[Entry]:
    """A file, with size and version of what a link leads to; nothing if it is gone by now."""
    try:
        itself = os.lstat(path)
        info = info_of(os.stat(path) if stat.S_ISLNK(itself.st_mode) else itself)
    except OSError as error:
        yield from _unreachable(path, error)
        return
    came = max(info["created"], itself.st_ctime)  # the link may be newer than what it leads to
    entry = entry_of(path, info | {"created": came})
    yield entry if info["type"] == "file" else entry._replace(no_file=info["type"])


def _unreachable(path: str, error: OSError) -> Iterator[Entry]:
    """Of what cannot be looked at, but is there. Raises what is no answer about this path alone."""
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
    """The names in a folder, those of folders with a slash behind them: so a walk meets whole paths in their order."""
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
    """Also behind a link; not where a link leads nowhere."""
    try:
        return entry.is_dir()
    except OSError:
        return False
