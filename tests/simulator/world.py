"""Processes of the product on one storage and one clock, of which one works at a time: a schedule decides which.

Each process has a greenlet for its work and one for its lease. A greenlet passes the turn on when it waits, when its
process has made the operations of its segment, or when another one of the process is due. A process that is not in
turn is frozen: the clock goes on without it. All greenlets share one thread, so a schedule repeats exactly.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from tests.contracts.crash_points.operations import LOOKS, Dead, Faulty

Fault = Literal["", "dies", "raises before", "raises after"]
TO_THE_END = 10**9
SECONDS_AN_OPERATION = 0.25
PASSED_THROUGH = ("MemoryFileSystem.rm",)  # of several requests, which count
LOOKING = {*LOOKS, "open_table", "load_table", "listdir", "sleep"}
FILES = ("os.", "directory_swap.", "LocalFileSystem.", "MemoryFileSystem.")
TABLE = "the table"
PRODUCT = "/overnight/"  # in the paths of its modules


@dataclass(frozen=True)
class Operation:
    """One look at the storage, or one change of it, the paths that it names, and the lines of code that make it."""

    process: str
    name: str
    paths: tuple[str, ...]
    lines: frozenset[tuple[str, int]] = frozenset()

    @property
    def is_change(self) -> bool:
        return self.name.rsplit(".", 1)[-1] not in LOOKING

    def depends_on(self, other: "Operation") -> bool:
        """Return True if the order of the two can matter: they are near in the tree, and one of them is a change."""
        if not (self.is_change or other.is_change):
            return False
        return any(_is_near(path, there) for path in self.paths for there in other.paths)


def _is_near(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


@dataclass(frozen=True)
class Segment:
    """A turn: so many operations of a process, and how it fails after them."""

    process: str
    count: int = TO_THE_END
    fault: Fault = ""


@dataclass(eq=False)
class Process:
    """A process of a run. `outcome` is its result or error once its work has ended."""

    name: str
    pid: int
    host: str
    work: Callable[[], Any]
    tasks: list["Task"] = field(default_factory=list)
    allowance: int = 0
    next_fault: Fault = ""
    is_dead: bool = False
    outcome: Any = None
    count: int = 0

    @property
    def is_over(self) -> bool:
        return self.is_dead or (bool(self.tasks) and all(task.is_done for task in self.tasks))


@dataclass(eq=False)
class Task:
    """A thread of a process. It waits until `wakes_at`, and for its turn."""

    process: Process
    target: Callable[[], Any]
    wakes_at: float = 0.0
    is_done: bool = False
    is_inside: bool = False  # an operation that another one makes is part of it


class World:
    """The processes of one schedule. `seen` is called after each change of the storage."""

    def __init__(
        self,
        seen: Callable[[Operation], None],
        now: float = 1_000_000.0,
        has_lines: bool = False,
    ) -> None:
        self.now = now
        self.trace: list[Operation] = []
        self.processes: dict[str, Process] = {}
        self._seen, self._has_lines = seen, has_lines
        self._hub = getcurrent()  # which plays the schedule
        self._tasks: dict[Any, Task] = {}
        self._greenlets: dict[Task, greenlet] = {}

    def add(self, name: str, work: Callable[[], Any], host: str = "here") -> Process:
        process = Process(name, 1000 + len(self.processes), host, work)
        self.processes[name] = process
        return process

    def play(self, schedule: Sequence[Segment]) -> None:
        """Run the segments one after another, and then end the processes that are left."""
        try:
            for segment in schedule:
                self._turn(self.processes[segment.process], segment)
        finally:
            for process in self.processes.values():
                self._end(process)

    @property
    def task(self) -> Task | None:
        """Return the task that has the turn; None outside the simulation, also in a thread of a library."""
        return self._tasks.get(getcurrent())

    def start(self, process: Process, target: Callable[[], Any]) -> Task:
        task = Task(process, target, self.now)
        process.tasks.append(task)
        self._greenlets[task] = greenlet(self._run, parent=self._hub)
        self._tasks[self._greenlets[task]] = task
        return task

    def wait(self, task: Task, until: float) -> None:
        """Pass the turn on until that time of the clock."""
        if task.process.is_dead:
            raise Dead
        task.wakes_at = until
        self._hub.switch()
        if task.process.is_dead:
            raise Dead

    def run(self, name: str, real: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Make an operation when its process may: this is the place of every fault and every delay."""
        task = self.task
        if task is None or task.is_inside or name in PASSED_THROUGH:
            return real(*args, **options)
        if name == "os.fsync":  # the disk keeps what a dead process wrote
            return None
        lines = _lines() if self._has_lines else frozenset()
        operation = Operation(task.process.name, name, _paths(name, args, options), lines)
        fault = self._begin(task, operation)
        if fault == "raises before":
            raise Faulty(5, f"{name} failed")
        task.is_inside = True
        try:
            result = real(*args, **options)
        finally:
            if operation.is_change:
                self._seen(operation)
            task.is_inside = False
        if fault == "raises after":
            result = None  # a cursor in the error's frames would keep SQLite locked
            raise Faulty(5, f"the answer to {name} was lost")
        return result

    def sleep(self, seconds: float) -> None:
        task = self.task
        assert task is not None
        lines = _lines() if self._has_lines else frozenset()
        self._begin(task, Operation(task.process.name, "sleep", (), lines))
        self.wait(task, self.now + seconds)

    def _begin(self, task: Task, operation: Operation) -> Fault:
        process = task.process
        if process.is_dead:
            raise Dead
        while not process.allowance or any(_is_due(other, self.now) for other in process.tasks if other is not task):
            self.wait(task, self.now)
        process.allowance -= 1
        process.count += 1
        self.now += SECONDS_AN_OPERATION
        self.trace.append(operation)
        fault, process.next_fault = process.next_fault, ""
        return fault

    def _turn(self, process: Process, segment: Segment) -> None:
        if process.is_over:
            return
        if not process.tasks:
            self.start(process, process.work)
        for task in process.tasks:  # what was due while the process was frozen comes after its work
            task.wakes_at = max(task.wakes_at, self.now)
        process.allowance = segment.count
        self._go_on(process)
        if segment.fault == "dies":
            self._end(process)
        elif segment.fault and not process.is_over:
            process.next_fault, process.allowance = segment.fault, 1
            self._go_on(process)

    def _go_on(self, process: Process) -> None:
        """Give the turn to the process's task that is due first, until no operation is left to it."""
        while process.allowance and not process.is_over:
            task = min((task for task in process.tasks if not task.is_done), key=lambda task: task.wakes_at)
            assert task.wakes_at < math.inf, f"{process.name} waits for itself"
            self.now = max(self.now, task.wakes_at)
            self._give_turn(task)

    def _end(self, process: Process) -> None:
        """End a process: each of its threads finds that it is dead."""
        process.is_dead = process.is_dead or not process.is_over
        for task in process.tasks:
            if not task.is_done:
                self._give_turn(task)

    def _give_turn(self, task: Task) -> None:
        self._greenlets[task].switch(task)

    def _run(self, task: Task) -> None:
        try:
            if not task.process.is_dead:
                outcome = task.target()
                if task is task.process.tasks[0]:
                    task.process.outcome = outcome
        except Dead:
            pass
        except BaseException as error:
            task.process.outcome = error
        finally:
            task.is_done = True
            for other in task.process.tasks:
                if other.wakes_at == math.inf:
                    other.wakes_at = self.now
            del self._tasks[self._greenlets.pop(task)]


def _is_due(task: Task, now: float) -> bool:
    return not task.is_done and task.wakes_at < now


def _paths(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[str, ...]:
    if not name.startswith(FILES):
        return (TABLE,)
    if options.get("dir_fd") is not None:  # a name below a folder that is unknown here: near to all paths
        return ("",)
    return tuple(arg.rstrip("/") for arg in args if isinstance(arg, str))


def _lines() -> frozenset[tuple[str, int]]:
    """Return the lines of the product, by file, that are being executed."""
    lines, frame = set(), sys._getframe(2)
    while frame.f_back is not None:
        if PRODUCT in frame.f_code.co_filename:
            lines.add((frame.f_code.co_filename.partition(PRODUCT)[2], frame.f_lineno))
        frame = frame.f_back
    return frozenset(lines)
