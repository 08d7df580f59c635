"""Local files after their links are resolved. Only regular files are opened.

A FIFO would wait for its writer, and a device may have no end. Neither is opened, even if it replaces a file just
before the opening.
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
    """Return `info_of` the target of a file. Raise `OSError` if it does not exist or may not be read."""
    return info_of(os.stat(path))


def info_of(status: os.stat_result) -> dict[str, Any]:
    """Return `type` (`file` or another kind), `size`, `mtime` and `created` of a file, as fsspec names them."""
    return {
        "type": _kind(status),
        "size": status.st_size,
        "mtime": status.st_mtime,
        "created": status.st_ctime,
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
    """Raise `RowError` unless `kind`, a `type` of `local_info`, is `file`."""
    if kind != "file":
        raise RowError(f"expected a file, found a {kind}")


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "thing of another kind")
