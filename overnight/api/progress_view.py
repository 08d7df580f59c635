"""Draw the progress of a run: as a screen of a terminal, as a line, and as HTML for a notebook.

In: a `View`, which holds all that is known at one moment. Nothing here reads a clock, a server or a terminal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from overnight.tasks.config.masking import printable
from overnight.tasks.engine.progress import Interval, Progress
from overnight.tasks.engine.progress_text import duration, facts_of, line_of, rate_text

BAR_COLUMNS, PULSE_SECONDS = 24, 1.6
STYLES = {"last incident": "yellow", "waits for": "yellow", "left": "bold"}


@dataclass(frozen=True)
class View:
    """What a screen shows after `seconds` of a command: its phase, the run's progress, and that of a backfill.

    `age` is the seconds since the progress was read. `partition` is empty before the first progress.
    """

    seconds: float = 0.0
    phase: str = ""
    partition: str = ""
    progress: Progress | None = None
    age: float = 0.0
    backfill: str = ""
    backfill_share: float | None = None
    expected: Interval | None = None  # the seconds of the run, by earlier runs
    beginning: float | None = None  # of the run, in seconds of the command

    @property
    def current(self) -> Progress | None:
        """Return the progress, whose time left is that of now. Before the first one, earlier runs give the time."""
        progress = self.progress
        if progress is None and self.expected and self.beginning is not None:
            return Progress(time_left=self.expected.after(self.seconds - self.beginning))
        if progress is None or progress.time_left is None:
            return progress
        return replace(progress, time_left=progress.time_left.after(self.age))


def line(view: View) -> str:
    """Return all facts in one line."""
    parts = [view.backfill] if view.backfill else []
    if progress := view.current:
        parts.append(line_of(progress))
    if not progress or not progress.stages or progress.is_complete:
        parts.append(view.phase)
    return printable(" · ".join(filter(None, parts)))


def screen(view: View) -> RenderableType:
    """Return the screen: the phase with the seconds, a line for each stage, and the other facts."""
    head = Table.grid(padding=(0, 2))
    head.add_row(Text(duration(view.seconds), "bold"), Text(_head(view)))
    parts: list[RenderableType] = [head]
    if view.backfill:
        parts.append(_bars([(view.backfill, view.backfill_share, "", "")], view.seconds))
    progress = view.current
    if progress:
        parts.append(_bars(list(_stages(progress)), view.seconds))
        facts = Table.grid(padding=(0, 2))
        for name, fact in facts_of(progress).items():
            facts.add_row(Text(_visible(fact), STYLES.get(name, "")))
        parts.append(facts)
    return Group(*parts)


def html(view: View) -> str:
    """Return the same facts as HTML."""
    lines = [f"<div><b>{escape(_head(view))}</b> {escape(duration(view.seconds))}</div>"]
    bars = [(view.backfill, view.backfill_share, "", "")] if view.backfill else []
    progress = view.current
    if progress:
        bars += _stages(progress)
    for name, share, rows, rate in bars:
        value = "" if share is None else f' value="{100 * share:.0f}"'
        text = escape(" ".join(filter(None, (_visible(name), rows, rate))))
        lines.append(f'<div><progress max="100"{value} aria-label="{escape(_visible(name))}"></progress> {text}</div>')
    if progress:
        lines += [f"<div>{escape(_visible(fact))}</div>" for fact in facts_of(progress).values()]
    return "".join(lines)


def _head(view: View) -> str:
    return _visible(": ".join(filter(None, (view.partition, view.phase))))


def _stages(progress: Progress) -> Iterator[tuple[str, float | None, str, str]]:
    """Yield the name of each stage, the fraction that is done, its rows, and its rate."""
    for name, stage in progress.stages.items():
        share = progress.share(name)
        rows = f"{stage.rows:,}"
        if progress.total is not None:
            rows = f"{rows} of {progress.total:,}"
        rate = "" if stage.rate is None or progress.is_complete else rate_text(stage.rate)
        yield name, share, rows, rate


def _bars(bars: list[tuple[str, float | None, str, str]], seconds: float) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(max_width=BAR_COLUMNS)  # a narrow terminal shortens the bars first
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    for name, share, rows, rate in bars:
        bar = ProgressBar(
            total=100,
            completed=100 * (share or 0.0),
            pulse=share is None,
            animation_time=seconds / PULSE_SECONDS,
        )
        percent = "" if share is None else f"{int(100 * share)} %"
        table.add_row(Text(_visible(name)), bar, Text(percent), Text(rows), Text(rate, "cyan"))
    return table


def _visible(text: str) -> str:
    """Return a text in one line, with its control characters and marks of direction written out."""
    return printable(" ".join(text.split()))
