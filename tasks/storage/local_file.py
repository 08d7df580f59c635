"""A local file after its links are resolved, with its kind.

A FIFO waits for its writer, and a device may have no end. Neither is opened, even if it replaces a file just before the
opening.
"""

import os
import stat
from typing import Any, BinaryIO

from overnight.tasks.errors import RowError

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def local_info(path: str) -> dict[str, Any]:
    """Return an entry in fsspec's form, with all values from the link's target. Raise `OSError`."""
    return info_of(os.stat(path))


def info_of(found: os.stat_result) -> dict[str, Any]:
    """Return an entry in fsspec's form; its `type` is `file` or another kind."""
    return {
        "type": _kind(found),
        "size": found.st_size,
        "mtime": found.st_mtime,
        "created": found.st_ctime,
    }


def open_regular(path: str) -> BinaryIO:
    """Open a file for reading. Raise `RowError` for anything but a regular file, `OSError` if it cannot be opened."""
    refuse_others(_kind(os.stat(path)))
    # Something else may replace the file between check and opening. So opening does not wait, and the kind is checked
    # again.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        refuse_others(_kind(os.fstat(descriptor)))
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def refuse_others(kind: str) -> None:
    """Raise `RowError` if the `type` from `local_info` is not a regular file."""
    if kind != "file":
        raise RowError(f"expected a file, found a {kind}")


def _kind(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "thing of another kind")
