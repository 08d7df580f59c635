"""Makes room in the cache of `node_cache.py`: removes unused folders, the least recently used first.

`OVERNIGHT_MODEL_CACHE_GB` is the limit. A folder is in use while a process holds its lock.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from overnight.tasks.errors import AccessDenied, JobError
from overnight.tasks.storage.file_info import shown_bytes

LIMIT = "OVERNIGHT_MODEL_CACHE_GB"
DEFAULT_LIMIT_GB = 500.0
LOCK, PART = ".lock", ".part"  # the endings of a folder's lock, and of the folder while it is incomplete

_log = logging.getLogger("overnight.storage")


def make_room(cache: Path, part: Path, size: int, what: str) -> None:
    """Remove unused folders from `cache` until `part`, the folder to fill, can grow to `size` bytes.

    Both the limit of the cache (`OVERNIGHT_MODEL_CACHE_GB`) and the free space of the disk count. If all other folders
    are in use, the cache exceeds its limit, and a log line reports it. `what` names the content in messages.

    Raise `JobError` if `size` alone exceeds the limit, or if the limit is not a number above 0. Raise `AccessDenied` if
    the disk lacks space.
    """
    limit, needed = _limit_bytes(), max(0, size - _size(part))
    if size > limit:
        raise JobError(
            f"{what}: expected at most {shown_bytes(limit)}, the limit of the cache in {cache}, found "
            f"{shown_bytes(size)}. Raise {LIMIT} on the nodes."
        )
    while (over := _size(cache) + needed > limit) or shutil.disk_usage(cache).free < needed:
        if not _remove_oldest(cache):
            break
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise AccessDenied(
            f"{what}: expected {shown_bytes(needed)} of free space in {cache}, found {shown_bytes(free)}, and no "
            "model there is unused. Make room, or move the cache to a larger disk."
        )
    if over:
        _log.warning("%s exceeds its limit of %s: all other models there are in use", cache, shown_bytes(limit))


def _limit_bytes() -> float:
    written = os.environ.get(LIMIT) or str(DEFAULT_LIMIT_GB)
    with contextlib.suppress(ValueError):
        if (found := float(written)) > 0:
            return found * 1e9
    raise JobError(f"{LIMIT}: expected a number of gigabytes above 0, found {written!r}. Correct the environment.")


def _remove_oldest(cache: Path) -> bool:
    """Remove the unused folder whose last use is the oldest, complete or not. Return False if there is none."""
    for lock in sorted(cache.glob(f"*{LOCK}"), key=lambda path: path.stat().st_mtime):
        folder = lock.with_name(lock.name.removesuffix(LOCK))
        part = Path(f"{folder}{PART}")
        for path in (folder, part):
            if path.is_symlink():  # only the link is in the cache
                path.unlink()
        if not folder.is_dir() and not part.is_dir():
            continue
        with _held_alone(lock) as is_held:
            if is_held:
                shutil.rmtree(part, ignore_errors=True)
                if folder.is_dir():
                    folder.rename(part)  # a folder under its own name is always complete
                    shutil.rmtree(part)
                _log.warning("removed %s from %s to make room: it is unused", folder.name, cache)
                return True
    return False


@contextlib.contextmanager
def _held_alone(lock: Path) -> Iterator[bool]:
    """Yield True if no other process uses or fills the folder of this lock, and False otherwise.

    If it is True, other processes wait until the body ends.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        is_held = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_held = False
        yield is_held
    finally:
        os.close(descriptor)


def _size(folder: Path) -> int:
    """Return the total bytes of the files below. Other processes may remove some of them meanwhile."""
    found = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            found += about.st_size if stat.S_ISREG(about.st_mode) else 0
    return found
