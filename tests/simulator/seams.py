"""The places in which the product meets the machine, for the body: storage, clock, threads and the table of processes.

The operations are those of `tests/contracts/crash_points`, and those that matter only between two runs.
"""

import contextlib
import functools
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyiceberg.catalog.sql
import pytest
import sqlalchemy

from overnight.flows.ledger import garbage_collection, undo
from overnight.flows.runs import attempt
from overnight.flows.runs import run as described
from overnight.tasks.state import lease, run, staged_parts
from overnight.tasks.storage import location
from overnight.tasks.write.merge import merge_parts
from overnight.tasks.write.sinks import hive_files
from overnight.tasks.write.tables import delta, lance, optimistic_commit, sql
from tests.contracts.crash_points.operations import SEAMS, Storage
from tests.contracts.sinks import publications
from tests.simulator.world import World

LOG = logging.getLogger(__name__)
LOG.setLevel(logging.ERROR)  # each repair is a warning
MORE_SEAMS: list[tuple[Any, tuple[str, ...]]] = [
    (os, ("listdir", "remove")),
    (delta, ("open_table",)),
    (lance, ("open_table",)),
]


class Machine:
    """The machine of the processes: `world` is that of the schedule that is played."""

    def __init__(self) -> None:
        self.storage = Storage([*SEAMS, *MORE_SEAMS])
        self.world = World(lambda operation: None)

    @contextlib.contextmanager
    def playing(self, world: World) -> Iterator[None]:
        self.world = world
        with self.storage.counted(world):
            yield

    @contextlib.contextmanager
    def patched(self) -> Iterator["Machine"]:
        with self.storage.patched(), pytest.MonkeyPatch.context() as patch:
            clock = SimpleNamespace(sleep=self._sleep, time_ns=self._time_ns, time=time.time, monotonic=time.monotonic)
            for module in (lease, optimistic_commit, hive_files):
                patch.setattr(module, "time", clock)
            patch.setattr(lease, "WATCH_SECONDS", lease.EXPIRY_SECONDS)
            patch.setattr(lease, "threading", SimpleNamespace(Event=self._event, Thread=self._thread))
            patch.setattr(lease, "os", SimpleNamespace(getpid=self._pid))
            patch.setattr(lease, "socket", SimpleNamespace(gethostname=self._host))
            patch.setattr(lease, "Path", self._process_file)
            patch.setattr(described, "new_attempt", self._new_attempt)
            patch.setattr(attempt, "get_run_logger", lambda: LOG)
            patch.setattr(undo, "Notice", lambda *arguments: Mock())
            patch.setattr(undo, "known_server", lambda: "")
            patch.setattr(sql, "SECONDS_TO_WAIT", 0)  # a frozen process keeps SQLite's lock
            patch.setattr(merge_parts, "COPIES_AT_ONCE", 1)
            for pooled in (staged_parts, merge_parts, garbage_collection):
                patch.setattr(pooled, "ThreadPoolExecutor", InOrder)
            for module, name in ((location, "open_filesystem"), (location, "expand"), (run, "partition_folder")):
                patch.setattr(module, name, functools.cache(getattr(module, name)))  # names stay as they are
            # Readers look while a publish holds SQLite's lock, so they begin no transaction.
            unpooled = functools.partial(sqlalchemy.create_engine, poolclass=sqlalchemy.NullPool)
            patch.setattr(publications, "engine", functools.cache(unpooled))
            patch.setattr(pyiceberg.catalog.sql, "create_engine", functools.cache(unpooled))
            yield self

    def _sleep(self, seconds: float) -> None:
        if self.world.task is None:
            return
        self.world.sleep(seconds)

    def _time_ns(self) -> int:
        return int(self.world.now * 1e9)

    def _new_attempt(self) -> str:
        """Return the name of an attempt of the process in turn; outside the simulation, one before all others."""
        task = self.world.task
        moment = datetime.fromtimestamp(self.world.now if task else 0, UTC)
        return f"{moment:%Y%m%dT%H%M%S}-{self._pid() if task else 0:06d}"

    def _pid(self) -> int:
        task = self.world.task
        return task.process.pid if task else os.getpid()

    def _host(self) -> str:
        task = self.world.task
        return task.process.host if task else socket.gethostname()

    def _event(self) -> "Event":
        return Event(self)

    def _thread(self, target: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> "Thread":
        return Thread(self, functools.partial(target, *args))

    def _process_file(self, path: str) -> Any:
        """Return the file of a process in /proc: a simulated one is there until it has ended."""
        pid = int(path.split("/")[2])
        for process in self.world.processes.values():
            if process.pid == pid and not process.is_over:
                return SimpleNamespace(read_text=lambda: f"{pid} (run)" + f" {pid}" * 20)
        return SimpleNamespace(read_text=_missing)


def _missing() -> str:
    raise FileNotFoundError


class Event:
    """An event of the lease's thread, which waits by the simulated clock."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._is_set = machine, False
        self._waiting: list[Any] = []

    def set(self) -> None:
        self._is_set = True
        for task in self._waiting:
            task.wakes_at = self._machine.world.now

    def wait(self, seconds: float) -> bool:
        world = self._machine.world
        if not self._is_set and world.task is not None:
            self._waiting.append(world.task)
            world.wait(world.task, world.now + seconds)
        return self._is_set


class Thread:
    """A thread of the lease: a task of the process that starts it."""

    def __init__(self, machine: Machine, target: Callable[[], Any]) -> None:
        self._machine, self._target = machine, target
        self._task: Any = None

    def start(self) -> None:
        world = self._machine.world
        if world.task is not None:
            self._task = world.start(world.task.process, self._target)

    def join(self) -> None:
        world = self._machine.world
        while self._task is not None and not self._task.is_done:
            assert world.task is not None
            world.wait(world.task, math.inf)


class InOrder:
    """A pool that does each piece of work when it is given, in the thread that gives it."""

    def __init__(self, workers: int) -> None:
        del workers

    def __enter__(self) -> "InOrder":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def map(self, work: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        return [work(*values) for values in zip(*arguments, strict=False)]

    def submit(self, work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future
