"""The folders in which the modules of a job are: the working directory, and the folder of the job file.

The name of a class or function knows the folder of its job file. So it can be imported on every node, from any working
directory. On another machine the job's folder is part of the working directory that was sent there.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CodeFolder:
    """The folder of a job file, as a full path and from the working directory in which the job was loaded."""

    path: str
    below: str

    def here(self) -> str:
        """Return the path on this machine. Return the working directory if the folder is neither here nor in it."""
        if os.path.isdir(self.path):
            return os.path.abspath(self.path)
        if self.below.startswith(".."):
            return os.getcwd()
        return os.path.abspath(self.below)


_FOLDER: ContextVar[CodeFolder | None] = ContextVar("code_folder", default=None)
_ON_PATH: list[str] = []  # the folders of job files on the import path, without the working directory


class TargetName(str):
    """`module:Name` in a job file, with the folder of the job file."""

    folder: CodeFolder

    def __new__(cls, name: str, folder: CodeFolder) -> "TargetName":
        """Return the name as it is in the job file in `folder`."""
        target = super().__new__(cls, name)
        target.folder = folder
        return target

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.folder)


@contextlib.contextmanager
def modules_in(folder: str | CodeFolder | None) -> Iterator[None]:
    """Give targets that are validated while the body runs this folder, unless an outer call gave them another."""
    if isinstance(folder, str):
        folder = CodeFolder(os.path.abspath(folder), os.path.relpath(folder))
    token = _FOLDER.set(_FOLDER.get() or folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def code_folder() -> CodeFolder | None:
    """Return the folder of `modules_in`, or None outside of its body."""
    return _FOLDER.get()


def folder_of(target: str | None) -> CodeFolder | None:
    """Return the folder of the job file that has this target; None if it is unknown."""
    return target.folder if isinstance(target, TargetName) else None


def with_folder(target: str) -> str:
    """Return the target with the folder of `modules_in`, if it has none."""
    folder = _FOLDER.get()
    if folder is None or isinstance(target, TargetName):
        return target
    return TargetName(target, folder)


def folders_of(target: str) -> list[str]:
    """Return the folders in which the module of a target may be, in the order of the import path."""
    folders, folder = [os.getcwd()], folder_of(target)
    if folder and folder.here() not in folders:
        folders.append(folder.here())
    return folders


def put_last(folders: list[str]) -> None:
    """Put these folders at the end of the import path, in place of those of the last call.

    Modules of the folders that leave the path are imported again later: another job may have modules of the same names.
    """
    former = set(_ON_PATH) - set(folders)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) not in {*folders, *former}] + folders
    _ON_PATH[:] = folders[1:]
    if not former:
        return
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and any(Path(file).is_relative_to(folder) for folder in former):
            del sys.modules[name]
