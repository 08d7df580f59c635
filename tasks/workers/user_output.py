"""Collect the output of models, steps and their libraries for the run's log: stdout, stderr and `logging`.

The streams work as before, so a Ray worker's own log has the lines too. If no code configures `logging`, stderr gets
warnings of all code, and the other messages of the user's own code, which Python drops. Output of C code and child
processes comes from the worker's log file when the body ends, see `raw_output.py`.
"""

import contextlib
import contextvars
import logging
import os
import platform
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

from overnight.tasks.config.masking import masked, printable
from overnight.tasks.config.user_frames import is_own
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.raw_output import RawOutput, flush_c_streams, last_text, raw_outputs

LONGEST_LINE = 1000  # characters
LINES_A_SECOND = 100  # per process; further ones are counted
SECONDS_BETWEEN = 0.5  # between messages to the supervisor, while the body runs

_source: contextvars.ContextVar[str] = contextvars.ContextVar("source", default="")
_is_left_alone: contextvars.ContextVar[bool] = contextvars.ContextVar("is_left_alone", default=False)


@contextlib.contextmanager
def left_alone() -> Iterator[None]:
    """Make `collected` do nothing while the body runs."""
    token = _is_left_alone.set(True)
    try:
        yield
    finally:
        _is_left_alone.reset(token)


@contextlib.contextmanager
def collected(run: Run, source: str) -> Iterator[None]:
    """Send what code prints and logs in this process to the run's supervisor while the body runs.

    `source` begins each line: the stage, and the model or step, such as `write my_checks:labels`.
    """
    if _is_left_alone.get():
        yield
        return
    install()
    token = _source.set(source)
    _collector.begin(run, source)
    try:
        yield
    finally:
        _collector.end()
        _source.reset(token)


def install() -> None:
    """Replace stdout, stderr and the last handler of `logging` by ones that can collect lines for the run's log.

    A process calls this before it imports libraries that log, because their handlers keep the stream that they find.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Tee):
            setattr(sys, name, _Tee(stream))
    if not isinstance(logging.lastResort, _LastResort):
        logging.lastResort = _LastResort()
    if not logging.root.handlers and logging.root.level == logging.WARNING:
        logging.root.setLevel(logging.INFO)


class _Collector:
    """The lines that this process has not sent yet. A thread sends them, so that the last ones survive a crash."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: garbage collection in its body may write
        self._sending = threading.Lock()
        self._process = 0
        self._lines: list[str] = []
        self._bodies = self._second = self._count = self._excess = 0
        self._run: Run | None = None
        self._newest = ""  # the source for threads that the user's code started
        self._written = threading.Event()
        self._thread: threading.Thread | None = None
        self._raw: list[RawOutput] = []
        self._printed: Counter[str] = Counter()  # lines of Python's streams that `_raw` has not met yet

    @property
    def is_on(self) -> bool:
        """Return True if lines are collected here. A process that user code forks has no sending thread."""
        return self._bodies > 0 and self._process == os.getpid()

    def begin(self, run: Run, source: str) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._raw, self._bodies = [], 0
            if not self._bodies:
                self._raw = self._raw or raw_outputs()  # a forked process may get its output after its first body
                self._printed.clear()
                for raw in self._raw:
                    raw.skip()
            self._bodies += 1
            self._run, self._newest, self._process = run, source, os.getpid()

    def end(self) -> None:
        """Return once everything is sent, if it was the last body: the process may end with it."""
        if self._bodies == 1:
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, _Tee):
                    stream.end_line()
        self._read_raw()
        with self._lock:
            self._bodies -= 1
        if not self.is_on:
            self._send()

    def _read_raw(self) -> None:
        """Add what C code and child processes wrote."""
        if not self._raw:
            return
        with contextlib.suppress(Exception), self._lock:  # what a model prints must not cost a row
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            flush_c_streams()
            for raw in self._raw:
                for text in raw.lines(self._printed, is_last=self._bodies == 1):
                    self.add(_shown(text))

    def print(self, text: str) -> None:
        """Add a line that Python's stream is about to write."""
        if self._raw:
            with self._lock:
                self._printed[text] += 1
        self.add(_shown(text))

    def add(self, line: str) -> None:
        line = self._with_source(line)
        with self._lock:
            if (second := int(time.monotonic())) != self._second:
                self._note_excess()
                self._second, self._count = second, 0
            self._count += 1
            if self._count > LINES_A_SECOND:
                self._excess += 1
                return
            self._lines.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_sending, name="console", daemon=True)
                self._thread.start()
        self._written.set()

    def _with_source(self, text: str) -> str:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")[11:23]
        return f"{moment} {_source.get() or self._newest} [{platform.node()}:{os.getpid()}] {text}"

    def _note_excess(self) -> None:
        if self._excess:
            self._lines.append(
                self._with_source(f"({self._excess:,} lines left out: more than {LINES_A_SECOND} a second)")
            )
            self._excess = 0

    def _keep_sending(self) -> None:
        while True:
            self._written.wait()
            self._written.clear()
            self._send()
            time.sleep(SECONDS_BETWEEN)

    def _send(self) -> None:
        with self._sending:
            with self._lock:
                self._note_excess()
                lines, self._lines, run = self._lines, [], self._run
            if lines and run:
                with contextlib.suppress(Exception):  # the output of a model must not cost a row
                    supervisor.emit(run, supervisor.LinesWritten(lines))


class _Tee:
    r"""A stream whose lines are also collected. Progress bars overwrite a line with \r: its last text counts."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._tail = ""  # text without a line end

    def write(self, text: str) -> int:
        if _collector.is_on:
            *lines, tail = (self._tail + text).split("\n")
            self._tail = last_text(tail) + "\r" * tail.endswith("\r")
            for line in lines:
                self._add(line)
            if len(self._tail) > LONGEST_LINE:
                self.end_line()
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def end_line(self) -> None:
        """Collect the text that has no line end yet."""
        line, self._tail = self._tail, ""
        self._add(line)

    def _add(self, line: str) -> None:
        if text := last_text(line).rstrip():
            _collector.print(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _LastResort(logging.Handler):
    """Python's handler of last resort, which also handles messages of the user's own code."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or is_own(record.pathname):
            print(self.format(record), file=sys.stderr)


def _shown(text: str) -> str:
    line = printable(masked(text[: 4 * LONGEST_LINE]))[:LONGEST_LINE]  # masked first: half a secret has no form
    line = line.encode(errors="replace").decode()
    if len(text) > LONGEST_LINE:
        line += f" ... (of {len(text):,} characters)"
    return line


_collector = _Collector()
