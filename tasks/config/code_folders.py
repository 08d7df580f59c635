"""The folders in which the modules of a job are: the working directory, and the folder of the job file.

The name of a class or function knows the folder of its job file. So it can be imported on every node, from any working
directory. On another machine the job's folder is part of the working directory that was sent there.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any


class TargetName(str):
    """`module:Name` in a job file, with the folder of the job file, as a full path and from the working directory."""

    folder: str
    below: str

    def __new__(cls, name: str, folder: str) -> "TargetName":
        """Return the name as it is in the job file in `folder`."""
        target = super().__new__(cls, name)
        target.folder = os.path.abspath(folder)
        target.below = os.path.relpath(folder)
        return target

    def __reduce__(self) -> tuple[Any, ...]:
        return str.__new__, (type(self), str(self)), {"folder": self.folder, "below": self.below}


@contextlib.contextmanager
def modules_in(folder: str) -> Iterator[None]:
    """Give targets that are validated while the body runs this folder, unless an outer call gave them another."""
    token = _FOLDER.set(_FOLDER.get() or folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def code_folder() -> str | None:
    """Return the folder of `modules_in`, or None outside of its body."""
    return _FOLDER.get()


def with_folder(target: str) -> str:
    """Return the target with the folder of `modules_in`, if it has none."""
    folder = _FOLDER.get()
    return TargetName(target, folder) if folder and not isinstance(target, TargetName) else target


def folders_of(target: str) -> list[str]:
    """Return the folders in which the module of a target may be, in the order of the import path."""
    here = os.getcwd()
    if not isinstance(target, TargetName):
        return [here]
    below = os.path.abspath(target.below) if not target.below.startswith("..") else here
    folder = target.folder if os.path.isdir(target.folder) else below
    return [here] if folder == here else [here, folder]


def put_last(folders: list[str]) -> None:
    """Put these folders at the end of the import path, in place of those of the last call.

    Modules of the folders that leave the path are imported again later: a job in another folder may have modules of the
    same names.
    """
    gone = set(_ON_PATH) - set(folders)
    rest = [entry for entry in sys.path if os.path.abspath(entry) not in {*folders, *gone}]
    sys.path[:] = [*rest, *folders]
    _ON_PATH[:] = folders[1:]
    for name, module in list(sys.modules.items()) if gone else ():
        file = getattr(module, "__file__", None)
        if file and any(Path(file).is_relative_to(folder) for folder in gone):
            del sys.modules[name]


_FOLDER: ContextVar[str | None] = ContextVar("code_folder", default=None)
_ON_PATH: list[str] = []  # the folders of job files on the import path, without the working directory
