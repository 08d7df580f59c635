"""Show what a command does, from its first second: a screen on a terminal and in a notebook, lines otherwise.

A `Screen` begins with the phases of the command, such as the import and the start of Ray. `following` then reads the
progress of a flow run from its artifact in Prefect, wherever the run is.
"""

import atexit
import contextlib
import importlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from overnight.api import progress_view
from overnight.api.console import VisibleConsole
from overnight.api.progress_view import View
from overnight.tasks.engine.progress import Interval, Progress, never_less

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

SECONDS_BETWEEN_LINES = 10.0
FRAMES_PER_SECOND = 4


@dataclass(frozen=True)
class Verbosity:
    """What a command shows: nothing but errors, or also what Ray and Prefect write."""

    quiet: bool = False
    verbose: bool = False


class Screen:
    """Shows a `View` until the body ends, and the warnings of the run above it. Any thread may change the view."""

    def __init__(self, verbosity: Verbosity = Verbosity(), console: Console | None = None) -> None:
        self.verbosity = verbosity
        self.console = console or VisibleConsole(stderr=True, soft_wrap=True, highlight=False)
        self.view = View()
        self._start = self._read_at = time.monotonic()
        self._line_at = self._start
        self._lock = threading.Lock()
        self._display: AbstractContextManager[Any] = contextlib.nullcontext()
        self.show_html: Any = None
        self._run = ""

    def __enter__(self) -> Self:
        if not self.verbosity.quiet:
            self._begin()
        return self

    def _begin(self) -> None:
        if self.console.is_jupyter:
            self._display = _notebook_output(self)
        elif self.is_live:
            self._display = Live(
                get_renderable=self._drawn,
                console=self.console,
                transient=True,
                refresh_per_second=FRAMES_PER_SECOND,
            )
        self._display.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        display, self._display = self._display, contextlib.nullcontext()
        display.__exit__(kind, error, traceback)
        colorama = sys.modules.get("colorama")  # Ray imports it: at the exit it writes to the display that ended
        if colorama and isinstance(display, Live):
            atexit.unregister(colorama.initialise.reset_all)

    @property
    def is_live(self) -> bool:
        """Return True if a terminal or a notebook shows the view, so that no lines are needed.

        A terminal that cannot move its cursor, such as Emacs' with `TERM=dumb`, shows lines.
        """
        has_cursor = self.console.is_terminal and not self.console.is_dumb_terminal
        return has_cursor or self.console.is_jupyter

    def now(self) -> View:
        """Return the view with the seconds of now."""
        moment = time.monotonic()
        with self._lock:
            return replace(self.view, seconds=moment - self._start, age=moment - self._read_at)

    def phase(self, text: str) -> None:
        """Show what the command does now. Without a terminal, print it as a line."""
        if text == self.view.phase:
            return
        with self._lock:
            self.view = replace(self.view, phase=text)
        if not self.is_live:
            self._print(text)
        self.tick()

    def expect(self, interval: Interval | None) -> None:
        """Note how long the run will take. The screen shows it from its beginning to its first progress."""
        with self._lock:
            self.view = replace(self.view, expected=interval)

    def begin(self) -> None:
        """Note that the run begins, unless it has begun."""
        with self._lock:
            if self.view.beginning is None:
                self.view = replace(self.view, beginning=time.monotonic() - self._start)

    def progress(self, run: str, partition: str, progress: Progress) -> None:
        """Show the progress of a run. Within one run, no stage falls back."""
        with self._lock:
            before = self.view.progress if run == self._run else None
            if before is None or progress.seconds != before.seconds:  # the server has each one for some seconds
                self._read_at = time.monotonic()
            self._run = run
            self.view = replace(self.view, partition=partition, progress=never_less(progress, before))

    def backfill(self, text: str, share: float) -> None:
        """Show how many partitions of a backfill have ended."""
        with self._lock:
            self.view = replace(self.view, backfill=text, backfill_share=share)

    def tick(self) -> None:
        """Update the notebook, or print the line that is due without a terminal."""
        if self.show_html:
            self.show_html(progress_view.html(self.now()))
        elif not self.is_live and time.monotonic() - self._line_at >= SECONDS_BETWEEN_LINES:
            self._print(progress_view.line(self.now()))

    def say(self, text: str) -> None:
        """Print a line that users need after the run too, such as an address."""
        if not self.verbosity.quiet:
            self.console.print(text, markup=False)

    def message(self, text: str, style: str | None = None) -> None:
        """Print a line above the screen, after the seconds since the start."""
        if not self.verbosity.quiet:
            # A style of `print` would colour the screen below it, too.
            self.console.print(Text(f"{self.now().seconds:4.0f} s  {text}", style or ""))

    def _print(self, text: str) -> None:
        self._line_at = time.monotonic()
        self.message(text)

    def _drawn(self) -> RenderableType:
        return progress_view.screen(self.now())


@contextlib.contextmanager
def _notebook_output(screen: Screen) -> Iterator[None]:
    """Show the view in the output of the cell. At the end it goes."""
    display: Any = importlib.import_module("IPython.display")
    output = display.display(display.HTML(progress_view.html(screen.now())), display_id=True)
    screen.show_html = lambda html: output.update(display.HTML(html))
    try:
        yield
    finally:
        screen.show_html = None
        output.update(display.HTML(""))


class LogLines(logging.Handler):
    """Print the log of this process's flow runs above the screen: warnings and a backfill's lines, or all records."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record. An error ends the run, and the command prints it."""
        is_warning = record.levelno == logging.WARNING
        if self._screen.verbosity.verbose or is_warning or getattr(record, "is_shown", False):
            self._screen.message(self.format(record), "yellow" if is_warning else None)


@contextlib.contextmanager
def logged(screen: Screen) -> Iterator[None]:
    """Print the log above the screen while the body runs; if verbose, also what Prefect writes. Ray writes itself."""
    logger = logging.getLogger("prefect" if screen.verbosity.verbose else "prefect.flow_runs")
    handler = LogLines(screen)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
