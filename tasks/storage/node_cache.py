"""Folders of files that the processes of one node share: each is filled once, and stays while a process uses it.

`OVERNIGHT_MODEL_CACHE` names the place. Each folder has a lock beside it, by `flock`, which the kernel releases when a
process ends. A process that fills or removes a folder holds the lock alone. A process that uses it shares the lock
until its end. A folder gets its name by a rename when it is complete. So a process that is killed leaves only a `.part`
folder, and the next one continues in it. `cache_eviction.py` makes room.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import AccessDenied
from overnight.tasks.storage.cache_eviction import LOCK, PART, make_room

FOLDER = "OVERNIGHT_MODEL_CACHE"

_log = logging.getLogger("overnight.storage")
_used: dict[Path, int] = {}  # folder -> the descriptor whose shared lock this process keeps


def cached_folder(name: str, size: int, what: str, fill: Callable[[Path], None]) -> Path:
    """Return the folder `name` of this node's cache. If it is missing, one process of the node fills it by `fill`.

    Other processes wait meanwhile. The folder stays until this process ends.

    Args:
        size: The bytes that `fill` needs. If the cache would exceed its limit, unused folders are removed.
        what: The content, for messages.
        fill: Writes all files into the folder that it gets, which may have complete files of an earlier try.

    Raises:
        JobError: The content is larger than the cache, or the limit is not a number.
        AccessDenied: The disk lacks space, or this user may not write to the cache.
    """
    folder = _place() / name
    if folder in _used and folder.is_dir():
        return folder
    with _refused(folder.parent, what):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{folder}{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(lock, fcntl.LOCK_SH, what)
        while not folder.is_dir():  # again after the change of locks: another process may remove it in between
            _acquire(lock, fcntl.LOCK_EX, what)
            if not folder.is_dir():
                _fill(folder, size, what, fill)
            _acquire(lock, fcntl.LOCK_SH, what)
        os.utime(lock)  # the time of its last use
    except BaseException:
        os.close(lock)
        raise
    _used[folder] = lock
    return folder


def _place() -> Path:
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "overnight" / "models"
    return Path(os.environ.get(FOLDER) or default).expanduser().absolute()


def _acquire(lock: int, how: int, what: str) -> None:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.warning("waiting for another process of this node, which fetches %s", masked(what))
        fcntl.flock(lock, how)


def _fill(folder: Path, size: int, what: str, fill: Callable[[Path], None]) -> None:
    part = Path(f"{folder}{PART}")
    with _refused(folder.parent, what):
        part.mkdir(mode=0o700, exist_ok=True)
    make_room(folder.parent, part, size, what)
    fill(part)
    os.rename(part, folder)


@contextlib.contextmanager
def _refused(cache: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AccessDenied(
            f"{what}: cannot write to {cache}, the cache for models on this node: {error}. Name a folder that the "
            f"workers' user may write to in {FOLDER}."
        ) from error
