"""Local files: facts about them, opening only regular files, and atomic writes under another name.

A FIFO would wait for its writer, and a device may have no end. Neither is opened, even if it replaces a file just
before the opening.
"""

import contextlib
import os
import stat
import uuid
from collections.abc import Iterator
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


@contextlib.contextmanager
def temporary_file(path: str) -> Iterator[BinaryIO]:
    """Yield a new file beside `path`. Remove it at the end, also after an error, unless the body renames it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            yield file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def put_on_disk(file: BinaryIO) -> None:
    """Flush Python's buffer of the file, and wait until its bytes are on the disk."""
    file.flush()
    os.fsync(file.fileno())
