"""Replace a directory by another one in one step, while files of others in it stay in place.

`exchange(new, target)` swaps the two with Linux's renameat2. Files in `target` whose names begin with `_` or `.` belong
to others, for example to Overnight's own state. Before the swap, `new` gets a symbolic link for each of these files, to
the file's place after the swap. Then each file is swapped with its link. So at every instant a path below `target`
leads to the file, and readers or writers there notice nothing. There is one exception: a single look-up of a path that
begins before the exchange and ends after it. It may find nothing, or a link to itself (`ENOENT`, `ELOOP`); the next
look-up succeeds.

A process may die between any two system calls; `restore` then completes the rest, and does no harm if nothing is left.
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
    """Swap two directories in one step, so that `new` has the former content of `target`.

    If there is no `target` yet, `new` is renamed to it. If the system cannot swap, both are renamed; `target` is then
    missing for an instant, but it never has a mixture. Raise `OSError` if a rename or a swap fails.
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

    `is_ours` takes a file's name, and is True for the publish's own files. A file stays in `new` if its name exists in
    `target` again.
    """
    if os.path.isdir(new + FORMER):
        os.rename(new + FORMER, new if os.path.isdir(target) else target)
    for place in (new, new + CUT_OFF):
        for name in _names(place):
            kept, there, link = f"{place}/{name}", f"{target}/{name}", _link(new, target, name)
            if is_ours(name) or name in PROBES:
                continue
            if _leads_to(there, link) and not os.path.islink(kept):
                swap(kept, there)
            if _leads_to(kept, link):
                os.unlink(kept)
            elif not os.path.lexists(there):
                os.rename(kept, there)


def withdraw(new: str, target: str, is_ours: Callable[[str], bool]) -> None:
    """Move files that the publish does not own from `new` back to `target`, and prevent a later `exchange`.

    A paused process could otherwise still exchange `new`. `is_ours` takes a file's name, and is True for the publish's
    own files.
    """
    restore(new, target, is_ours)
    if os.path.isdir(new):
        os.rename(new, new + CUT_OFF)
    restore(new, target, is_ours)


def remove(new: str, is_ours: Callable[[str], bool]) -> None:
    """Remove the publish's own files from the directory `new`, and the directory itself unless other files remain.

    `is_ours` takes a file's name, and is True for the publish's own files. If `withdraw` renamed `new`, the renamed
    directory is removed in the same way. A directory that does not exist is ignored. Raise `OSError` for a file that
    cannot be removed.
    """
    for place in (new, new + CUT_OFF):
        for name in _names(place):
            path = f"{place}/{name}"
            if is_ours(name) and os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif is_ours(name):
                os.unlink(path)
        for path in (*(f"{place}/{name}" for name in PROBES), place):
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
    """Return True if two paths in `directory` can be exchanged in one step. Some network filesystems cannot do that."""
    first, second = (f"{directory}/{name}" for name in PROBES)
    for path in (first, second):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
    try:
        swap(first, second)
    except OSError:
        return False
    finally:
        for path in (first, second):
            os.rmdir(path)
    return True


def can_move(directory: str, target: str) -> bool:
    """Return True if `directory` can be created and moved into the directory `target`.

    That needs permission, and both on one mount. The test leaves no directory.
    """
    try:
        os.mkdir(directory)
    except OSError:
        return False
    try:
        os.rename(directory, f"{target}/{os.path.basename(directory)}")
    except OSError:
        os.rmdir(directory)
        return False
    os.rmdir(f"{target}/{os.path.basename(directory)}")
    return True


def is_hidden(name: str) -> bool:
    """Return True if a file's name begins with `_` or `.`."""
    return name[0] in "_."


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
