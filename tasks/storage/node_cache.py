"""Folders of files that the processes of one node share: each is filled once, and stays while a process uses it.

Each folder has a lock beside it, by `flock`, which the kernel releases when a process ends. A process that fills or
removes a folder holds the lock alone; one that uses it shares the lock until its end. A folder is renamed when it is
complete. So a process that is killed leaves only a `.part` folder, and the next one continues in it.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import AccessDenied, JobError
from overnight.tasks.storage.file_info import shown_bytes

FOLDER = "OVERNIGHT_MODEL_CACHE"  # in the environment, as LIMIT
LIMIT = "OVERNIGHT_MODEL_CACHE_GB"
DEFAULT_LIMIT_GB = 500.0
LOCK, PART = ".lock", ".part"  # the endings of a folder's lock, and of the folder while it is incomplete

_log = logging.getLogger("overnight.storage")
_used: dict[Path, int] = {}  # folder -> the descriptor whose shared lock this process keeps


def cached_folder(name: str, size: int, what: str, fill: Callable[[Path], None]) -> Path:
    """Return the folder `name` of this node's cache, which stays until this process ends. One process calls `fill`.

    `fill` may find files of an earlier try. Raise `JobError` if the cache is too small, `AccessDenied` if the disk is.
    """
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "overnight" / "models"
    cache = Path(os.environ.get(FOLDER) or default).expanduser().absolute()
    folder = cache / name
    if folder in _used and folder.is_dir():
        return folder
    with _explained(cache, what):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{folder}{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(lock, fcntl.LOCK_SH, what)
        while not folder.is_dir():  # again after the change of locks: another process may remove it in between
            _acquire(lock, fcntl.LOCK_EX, what)
            if not folder.is_dir():
                part = Path(f"{folder}{PART}")
                with _explained(cache, what):
                    part.mkdir(mode=0o700, exist_ok=True)
                _make_room(cache, part, size, what)
                fill(part)
                os.rename(part, folder)
            _acquire(lock, fcntl.LOCK_SH, what)
        os.utime(lock)  # the time of its last use
    except BaseException:
        os.close(lock)
        raise
    _used[folder] = lock
    return folder


def _acquire(lock: int, operation: int, what: str) -> None:
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.warning("waiting for another process of this node, which fetches %s", masked(what))
        fcntl.flock(lock, operation)


@contextlib.contextmanager
def _explained(cache: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AccessDenied(
            f"{what}: cannot write to {cache}, the cache for models on this node: {error}. Name a folder that the "
            f"workers' user may write to in {FOLDER}."
        ) from error


def _make_room(cache: Path, part: Path, size: int, what: str) -> None:
    """Remove unused folders, the least recently used first, until `part` can grow to `size` bytes."""
    limit, needed = _limit_bytes(), max(0, size - _size(part))
    if size > limit:
        raise JobError(
            f"{what}: expected at most {shown_bytes(limit)}, the limit of the cache in {cache}, found "
            f"{shown_bytes(size)}. Raise {LIMIT} on the nodes."
        )
    while (is_over := _size(cache) + needed > limit) or shutil.disk_usage(cache).free < needed:
        if not _remove_oldest(cache):
            break
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise AccessDenied(
            f"{what}: expected {shown_bytes(needed)} of free space in {cache}, found {shown_bytes(free)}, and no "
            "model there is unused. Make room, or move the cache to a larger disk."
        )
    if is_over:
        _log.warning("%s exceeds its limit of %s: all other models there are in use", cache, shown_bytes(limit))


def _limit_bytes() -> float:
    text = os.environ.get(LIMIT) or str(DEFAULT_LIMIT_GB)
    with contextlib.suppress(ValueError):
        if (limit := float(text)) > 0:
            return limit * 1e9
    raise JobError(f"{LIMIT}: expected a number of gigabytes above 0, found {text!r}. Correct the environment.")


def _remove_oldest(cache: Path) -> bool:
    """Remove the unused folder whose last use is the oldest, complete or not. Return False if there is none."""
    for lock in sorted(cache.glob(f"*{LOCK}"), key=lambda path: path.stat().st_mtime):
        folder = lock.with_name(lock.name.removesuffix(LOCK))
        part = Path(f"{folder}{PART}")
        for path in (folder, part):
            if path.is_symlink():  # only the link is in the cache
                path.unlink()
        if (folder.is_dir() or part.is_dir()) and _remove_unused(folder, part, lock):
            _log.warning("removed %s from %s to make room: it is unused", folder.name, cache)
            return True
    return False


def _remove_unused(folder: Path, part: Path, lock: Path) -> bool:
    """Remove a folder, and return False if a process uses or fills it. Other processes wait until it is removed."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(part, ignore_errors=True)
        if folder.is_dir():
            folder.rename(part)  # a folder under its own name is always complete
            shutil.rmtree(part)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def _size(folder: Path) -> int:
    """Return the total bytes of the files below. Other processes may remove some of them meanwhile."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                size += status.st_size
    return size
