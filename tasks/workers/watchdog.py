"""Run work in a process that rows may kill: with a time limit on every call, and with care after a worker died.

`poison_rows.py` interprets deaths, and this file reports to it through the run's supervisor. It ends its own process
after a row took too long, or broke the device.
"""

import contextlib
import faulthandler
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from overnight.tasks.errors import RowError
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.poison_rows import DEATHS, DeathExplained, Reason, RowsBegun, RowsEnded
from overnight.tasks.workers.row_isolation import TOGETHER, RowIsolation
from overnight.tasks.workers.supervisor import Supervisor

SLACK = 10.0  # this number of times the usual seconds of a call is added to the limit of one row
GRACE_SECONDS = 5.0
STANDARD_ERROR = 2  # Ray makes it the log of the worker

Work = Callable[[pa.Table], pa.Table]


@contextlib.contextmanager
def death_reported(run: Run, stage: str, work: Hashable, incident: str) -> Iterator[bool]:
    """Record that this process does `work`, and report `incident` if another one died of it.

    Yield True if the rows of the work must run in pieces.
    """
    has_death, is_on = supervisor.ask(run, Supervisor.arrive, _this_process(), work) or (False, False)
    if has_death:
        supervisor.report(run, stage, incident)
    try:
        yield is_on
    finally:
        supervisor.leave(run, _this_process())  # it waits: the process may end with its task


class Watchdog:
    """Runs a stage's work on blocks in this process, with a time limit, and reports to the run's supervisor.

    `label` names the work in reports. The time limit grows with `pace`, the seconds for a row of a sample, or 0.
    """

    def __init__(self, run: Run, stage: str, label: str, pace: float) -> None:
        self._run, self._stage, self._label, self._pace = run, stage, label, pace
        self._worker = _this_process()

    def run(self, block: pa.Table, work: Work, isolation: RowIsolation) -> pa.Table:
        """Return the result of `work` for all rows of `block` together, or in pieces if `isolation` is on.

        In pieces, known poison rows are quarantined without work.
        """
        if isolation.is_on and len(block) and supervisor.is_there(self._run):
            return self._isolated(block, work)
        with _process_limited(self._seconds(int(blocks.counts(block).sum()))):
            return self._timed(block, work)

    @contextlib.contextmanager
    def at(self, block: pa.Table, isolation: RowIsolation | None = None) -> Iterator[RowIsolation]:
        """Record that this worker runs a block while the body runs, and yield how the block's rows must run.

        If the process ends in the body, the record stays. With `isolation`, for Ray tasks, nothing is recorded.
        """
        if isolation is not None or not len(block):
            yield isolation or TOGETHER
            return
        incident = "a worker died and its rows were run again"
        with death_reported(self._run, self._stage, self._name(block), incident) as is_on:
            yield RowIsolation(is_on)

    def end_process(self, error: Exception) -> None:
        """Report `error`, and end the process, so that a new one tries again. Without a supervisor, do nothing."""
        if supervisor.is_there(self._run):
            name = type(error).__name__
            supervisor.report(self._run, self._stage, f"{self._label}: a worker ended itself after {name}: {error}")
            reason = (name, f"{DEATHS} workers failed while they ran this row alone: {error}")
            supervisor.emit(self._run, DeathExplained(self._worker, reason, is_certain=False))
            os._exit(1)

    def _isolated(self, block: pa.Table, work: Work) -> pa.Table:
        pieces, poison_rows = self.judged(block)
        tables = {}
        for row, error in poison_rows.items():
            tables[row] = blocks.quarantine(block[row : row + 1], error, self._stage)
        for start, stop in pieces:
            piece = block[start:stop]
            rows = int(blocks.counts(piece).sum())
            with self.rows_reported(block, start, stop), self._row_limited(rows):
                tables[start] = self._timed(piece, work)
        return rebatch.joined(tables[start] for start in sorted(tables))

    def judged(self, block: pa.Table) -> tuple[list[tuple[int, int]], dict[int, RowError]]:
        """Return how a block that killed a worker must run: its pieces, (start, stop), and its poison rows' errors."""
        for worker in supervisor.ask(self._run, Supervisor.suspects, self._worker, self._name(block)) or ():
            if _ended_by_limit(worker):
                supervisor.emit(self._run, DeathExplained(worker, self._timeout(), is_certain=True))
        judgement = supervisor.ask(self._run, Supervisor.judge, self._worker, self._name(block), len(block))
        pieces, reasons = judgement or ([(0, len(block))], {})
        return pieces, {row: _error(*reason) for row, reason in reasons.items()}

    @contextlib.contextmanager
    def rows_reported(self, block: pa.Table, start: int, stop: int) -> Iterator[None]:
        """Record that these rows of the block run. If the process ends in the body, one of them is the cause."""
        supervisor.emit(self._run, RowsBegun(self._worker, self._name(block), start, stop))
        yield
        supervisor.emit(self._run, RowsEnded(self._worker))

    @contextlib.contextmanager
    def _row_limited(self, count: int) -> Iterator[None]:
        """End the process after a report when the time is over."""
        seconds = self._seconds(count)
        if seconds is None:
            yield
            return

        def give_up() -> None:
            faulthandler.dump_traceback(STANDARD_ERROR)
            supervisor.emit(self._run, DeathExplained(self._worker, self._timeout(), is_certain=True))
            os._exit(1)

        timer = threading.Timer(seconds, give_up)
        timer.start()
        mark = _mark(self._worker)
        try:
            with mark.open("wb") as file, _process_limited(seconds + GRACE_SECONDS, file.fileno()):
                yield
        finally:
            timer.cancel()
            mark.unlink(missing_ok=True)

    def _timeout(self) -> Reason:
        """Return the error type and the message of a row that took too long."""
        limit = self._run.row_timeout_seconds
        return "RowTimeout", f"expected a result within {limit:g} s, found none; see row_timeout_seconds"

    def _seconds(self, count: int) -> float | None:
        limit = self._run.row_timeout_seconds
        return None if limit is None else limit + SLACK * self._pace * count

    def _timed(self, block: pa.Table, work: Work) -> pa.Table:
        start = time.perf_counter()
        result = work(block)
        seconds = time.perf_counter() - start
        self._pace = max(self._pace, seconds / max(int(blocks.counts(block).sum()), 1))
        return result

    def _name(self, block: pa.Table) -> Hashable:
        return (self._label, block["__unit"][0].as_py(), block["__row"][0].as_py(), len(block))


_deadlines: dict[object, tuple[float, int]] = {}  # and the file of the traceback, by call in any thread of this process
_deadlines_lock = threading.Lock()


@contextlib.contextmanager
def _process_limited(seconds: float | None, file: int = STANDARD_ERROR) -> Iterator[None]:
    """End the process after `seconds`, with a traceback in `file`, also if a row hangs in C code.

    faulthandler's watchdog is a thread in C. A process has one, which is set to the earliest deadline.
    """
    if seconds is None:
        yield
        return
    call = object()
    with _deadlines_lock:
        _deadlines[call] = time.monotonic() + seconds, file
        _watch()
    try:
        yield
    finally:
        with _deadlines_lock:
            del _deadlines[call]
            _watch()


def _watch() -> None:
    if _deadlines:
        deadline, file = min(_deadlines.values())
        faulthandler.dump_traceback_later(max(deadline - time.monotonic(), 1e-3), exit=True, file=file)
    else:
        faulthandler.cancel_dump_traceback_later()


def _mark(worker: str) -> Path:
    """Return the file that gets the traceback if a row of `worker` holds Python's lock beyond its limit."""
    return Path(tempfile.gettempdir(), f"overnight-{worker}.timeout")


def _ended_by_limit(worker: str) -> bool:
    """Return True if `worker`, on this node, ended because a row held Python's lock; write its traceback to the log."""
    try:
        traceback = _mark(worker).read_text()
    except FileNotFoundError:
        return False
    _mark(worker).unlink()
    sys.stderr.write(traceback)
    return bool(traceback)


@lru_cache
def _this_process() -> str:
    """Return a name that no other process has."""
    return uuid.uuid4().hex


def _error(kind: str, message: str) -> RowError:
    error = RowError(message)
    error.__cause__ = type(kind, (Exception,), {})()  # the error type in the record
    return error
