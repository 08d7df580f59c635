"""A storage that fails at its k-th operation: each look at a file, each change, each statement and each commit.

`Operations` counts them in this process. At the operation `last` it raises an error, before the operation or after it
(the answer is lost), or it ends the work: `Dead` is no `Exception`, and every later operation raises it too, so that
nothing of the product reaches the storage any more, as if the process were gone.
"""

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import deltalake
import lance
import pyiceberg.catalog.sql
import pytest
import sqlalchemy
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from overnight.tasks.write.sinks import directory_swap

Way = Literal["raises before", "raises after", "dies"]
LOOKS = ("ls", "info", "exists", "find", "cat_file", "_open")
SEAMS: list[tuple[Any, tuple[str, ...]]] = [
    (os, ("rename", "replace", "unlink", "rmdir", "mkdir", "symlink", "link", "fsync")),
    (directory_swap, ("swap",)),
    (LocalFileSystem, LOOKS),
    (MemoryFileSystem, (*LOOKS, "pipe_file", "put_file", "cp_file", "rm_file", "rm", "makedirs")),
    (deltalake.DeltaTable, ("create", "create_write_transaction")),
    (lance.LanceDataset, ("commit", "add_columns")),
    (lance.fragment, ("write_fragments",)),
    (pyiceberg.catalog.sql.SqlCatalog, ("create_namespace", "create_table", "commit_table", "load_table")),
    (sqlalchemy.Connection, ("execute",)),
    (sqlalchemy.engine.default.DefaultDialect, ("do_commit",)),
]


class Dead(BaseException):
    """The process is gone."""


class Faulty(OSError):
    """The storage did not do it, or its answer was lost."""


class Counting(Protocol):
    """Makes each operation of the storage, or fails it."""

    def run(self, name: str, real: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return what the operation `real` returns."""


@dataclass
class Operations:
    """The operations so far by name. It fails at the number `last`; 0 never."""

    last: int = 0
    way: Way = "dies"
    names: list[str] = field(default_factory=list)
    is_dead: bool = False
    is_inside: bool = False  # an operation that another one makes is part of it

    def run(self, name: str, real: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.is_dead:
            raise Dead
        if self.is_inside:
            return real(*args, **options)
        self.names.append(name)
        is_last = len(self.names) == self.last
        if is_last and self.way == "dies":
            self.is_dead = True
            raise Dead
        if is_last and self.way == "raises before":
            raise Faulty(5, f"{name} failed")
        self.is_inside = True
        try:
            found = None if name == "os.fsync" else real(*args, **options)  # the disk keeps what a dead process wrote
        finally:
            self.is_inside = False
        if is_last:
            raise Faulty(5, f"the answer to {name} was lost")
        return found


class Storage:
    """The seams of the storage, which count and fail for the body of `counted`; otherwise they work as ever."""

    def __init__(self, seams: Sequence[tuple[Any, tuple[str, ...]]] = SEAMS) -> None:
        self.seams = seams
        self.operations: Counting | None = None

    @contextlib.contextmanager
    def counted(self, operations: Counting) -> Iterator[None]:
        self.operations = operations
        try:
            yield
        finally:
            self.operations = None

    @contextlib.contextmanager
    def patched(self) -> Iterator["Storage"]:
        with pytest.MonkeyPatch.context() as patch:
            for owner, names in self.seams:
                for name in names:
                    patch.setattr(owner, name, self._counting(owner, name))
            yield self

    def _counting(self, owner: Any, name: str) -> Any:
        real = getattr(owner, name)

        @functools.wraps(real)
        def counting(*args: Any, **options: Any) -> Any:
            if self.operations is None:
                return real(*args, **options)
            return self.operations.run(f"{owner.__name__.rpartition('.')[2]}.{name}", real, args, options)

        is_static = isinstance(owner, type) and not isinstance(owner.__dict__.get(name), type(counting))
        return staticmethod(counting) if is_static and name in ("create", "commit") else counting
