"""A local file behind its links: what it is, and how it is opened without ever waiting for something that is no file.

A FIFO waits for its writer, and a device may have no end: neither is opened, also where it takes a file's place late.
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
    """An entry as fsspec gives it, all of it of what a link leads to. Raises `OSError`."""
    return info_of(os.stat(path))


def info_of(found: os.stat_result) -> dict[str, Any]:
    """An entry as fsspec gives it; its `type` is `file` or what else there is."""
    return {
        "type": _kind(found),
        "size": found.st_size,
        "mtime": found.st_mtime,
        "created": found.st_ctime,
    }


def open_regular(path: str) -> BinaryIO:
    """Opens a file for reading. Raises `RowError` for what is none, `OSError` for what cannot be opened."""
    refuse_others(_kind(os.stat(path)))
    # Between the look and the opening something else may take its place: so it does not wait, and is looked at again.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        refuse_others(_kind(os.fstat(descriptor)))
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def refuse_others(kind: str) -> None:
    """Raises `RowError` for the `type` of what is no regular file, as `local_info` tells it."""
    if kind != "file":
        raise RowError(f"expected a file, found a {kind}")


def _kind(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "thing of another kind")
