"""Replace a directory by another one in one step, while files of others in it stay in place.

`exchange` swaps two directories with Linux's renameat2. Files in `target` whose names begin with `_` or `.` belong to
others. Before the swap, `new` gets a symbolic link for each of them, to its place after the swap; then each is swapped
with its link. Only a look-up of a path that begins before the exchange and ends after it may find nothing, once. A
process may die between any two system calls: `restore` completes the rest. `is_ours` is True for the publish's names.
"""

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Callable

AT_FDCWD, RENAME_EXCHANGE = -100, 2
FORMER, CUT_OFF = ".former", ".cut-off"
PROBES = (".overnight-a", ".overnight-b")


def exchange(new: str, target: str) -> None:
    """Swap two directories in one step, so that `new` has the former content of `target`; rename it if there is none.

    If the system cannot swap, both are renamed. `target` is then missing for an instant, but it never has a mixture.
    """
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if not os.path.isdir(target):
        os.rename(new, target)
        return
    _copy_access(target, new)
    if not can_swap(new):
        os.rename(target, new + FORMER)
        os.rename(new, target)
        os.rename(new + FORMER, new)
        return
    for name in os.listdir(target):
        if is_hidden(name):
            os.symlink(_link(new, target, name), f"{new}/{name}")
    swap(new, target)


def restore(new: str, target: str, is_ours: Callable[[str], bool]) -> None:
    """Move files that the publish does not own from `new` back to `target`, after a finished or interrupted `exchange`.

    A file stays in `new` if its name exists in `target` again.
    """
    if os.path.isdir(new + FORMER):
        os.rename(new + FORMER, new if os.path.isdir(target) else target)
    for directory in (new, new + CUT_OFF):
        for name in _names(directory):
            source, destination, link = f"{directory}/{name}", f"{target}/{name}", _link(new, target, name)
            if is_ours(name) or name in PROBES:
                continue
            if _leads_to(destination, link) and not os.path.islink(source):
                swap(source, destination)
            if _leads_to(source, link):
                os.unlink(source)
            elif not os.path.lexists(destination):
                os.rename(source, destination)


def withdraw(new: str, target: str, is_ours: Callable[[str], bool]) -> None:
    """Restore files that the publish does not own, and prevent a later `exchange` of `new` by a paused process."""
    restore(new, target, is_ours)
    if os.path.isdir(new):
        os.rename(new, new + CUT_OFF)
    restore(new, target, is_ours)


def remove(new: str, is_ours: Callable[[str], bool]) -> None:
    """Remove the publish's own files from `new`, also if `withdraw` renamed it, and then the empty directory."""
    for directory in (new, new + CUT_OFF):
        for name in _names(directory):
            path = f"{directory}/{name}"
            if is_ours(name) and os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif is_ours(name):
                os.unlink(path)
        for path in (*_probes(directory), directory):
            with contextlib.suppress(OSError):
                os.rmdir(path)


def swap(first: str, second: str) -> None:
    """Exchange two paths in one step. Raise `OSError` if the system or the filesystem cannot do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, "this system has no renameat2")
    if rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), first, None, second)


def can_swap(directory: str) -> bool:
    """Return True if two paths in `directory` can be exchanged in one step. Some network filesystems cannot do that.

    Raise `OSError` if the disk fails.
    """
    probes = _probes(directory)
    for path in probes:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
    try:
        swap(*probes)
    except OSError as error:
        return _raise_if_disk_fails(error)
    finally:
        for path in probes:
            os.rmdir(path)
    return True


def can_move(directory: str, target: str) -> bool:
    """Return True if permission and one mount let `directory` be created and moved into `target`. It leaves nothing.

    Raise `OSError` if the disk fails. If the process dies, `moved` may stay.
    """
    try:
        os.mkdir(directory)
    except OSError as error:
        return _raise_if_disk_fails(error)
    try:
        os.rename(directory, moved(directory, target))
    except OSError as error:
        _raise_if_disk_fails(error)
        os.rmdir(directory)
        return False
    os.rmdir(moved(directory, target))
    return True


def _raise_if_disk_fails(error: OSError) -> bool:
    """Return False for an error that a system or a filesystem gives which cannot do it."""
    if error.errno == errno.EIO:
        raise error
    return False


def moved(directory: str, target: str) -> str:
    """Return the path to which `can_move` moves `directory`."""
    return f"{target}/{os.path.basename(directory)}"


def is_hidden(name: str) -> bool:
    """Return True if a file's name begins with `_` or `.`."""
    return name[0] in "_."


def _probes(directory: str) -> tuple[str, str]:
    return f"{directory}/{PROBES[0]}", f"{directory}/{PROBES[1]}"


def _names(directory: str) -> list[str]:
    return os.listdir(directory) if os.path.isdir(directory) else []


def _link(new: str, target: str, name: str) -> str:
    return os.path.join(os.path.relpath(new, target), name)


def _leads_to(path: str, link: str) -> bool:
    return os.path.islink(path) and os.readlink(path) == link


def _copy_access(source: str, destination: str) -> None:
    shutil.copymode(source, destination)
    with contextlib.suppress(PermissionError):
        os.chown(destination, os.stat(source).st_uid, os.stat(source).st_gid)
