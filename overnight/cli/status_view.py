"""Print the output of `overnight status`: a calendar, a legend with counts, the unpublished and the newest partitions.

Every status has a letter and a colour of its own, so that the calendar is readable without colour. Times are UTC.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import starmap

from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from overnight.api.console import VisibleConsole
from overnight.flows.ledger import calendar_view
from overnight.flows.ledger.partition_status import PartitionStatus, Status
from overnight.flows.report.spending import spent_in, spent_text
from overnight.tasks.engine.progress_text import cost_text
from overnight.tasks.errors import first_line

STYLES: dict[Status, str] = {
    "published": "green",
    "missing": "dim",
    "failed": "bold red",
    "stale": "yellow",
    "running": "bold cyan",
}
WIDE = 100  # columns: a terminal of this width shows the counts of each month beside the calendar
SECONDS_BETWEEN = 5.0
AMOUNTS = {"tokens": "{:,.0f}".format, "cost": cost_text}  # columns where a partition has them


def show_status(
    job_name: str, entries: Sequence[PartitionStatus], reports: str = "", needs: Mapping[str, Mapping[str, int]] = {}
) -> None:
    """Print the partitions of a job on stdout: a calendar, the unpublished ones, the newest ones, and their reports."""
    console = VisibleConsole(highlight=False)
    counts = calendar_view.count(entries)
    if not entries:
        console.print(f"{job_name}: no partitions in this range")
        return
    first, last = entries[0].partition, entries[-1].partition
    if first != "all":
        console.print(f"[bold]{job_name}[/bold]: {len(entries):,} partitions, {first} to {last}\n")
        for line in _calendar(entries, console.width >= WIDE):
            console.print(line, no_wrap=True, crop=False)
        legend = Text("  ").join(starmap(_legend, counts.items()))
        console.print(Text("\n") + legend)
    else:
        console.print(f"[bold]{job_name}[/bold]: {entries[0].status}")
    _show_unpublished(console, calendar_view.unpublished(entries))
    _show_published(console, calendar_view.published(entries))
    if needs:
        console.print("\n[bold]jobs that it needs[/bold]")
    for name, numbers in needs.items():
        sums = ", ".join(f"{number:,} {status}" for status, number in numbers.items())
        console.print(f"{name}: {sums}", markup=False, soft_wrap=True)
    if reports:
        console.print(f"\nreports: {reports}", markup=False, soft_wrap=True)


def _calendar(entries: Sequence[PartitionStatus], with_sums: bool) -> Iterator[Text]:
    calendar = calendar_view.months(entries)
    width, unit = max(len(month.name) for months in calendar for month in months), calendar[0][0].unit
    numbers = (f"{cell:<2}" if cell == unit.cells[0] or cell % 5 == 0 else "  " for cell in unit.cells)
    yield Text(f"{'':{width + 2}}{''.join(numbers)}".rstrip(), "dim")
    for months in calendar:
        if len(months) > 1:
            missing = f"all {unit.cell} missing in {len(months):,} {unit.line}"
            yield Text(f"{months[0].name}  to {months[-1].name}: {missing}", "dim")
            continue
        [month] = months
        text = Text(f"{month.name:{width}}  ")
        for day in unit.cells:
            status = month.days.get(day)
            if status:
                text.append(f"{calendar_view.LETTERS[status]} ", STYLES[status])
            else:
                text.append("  ")
        if with_sums:
            counts = Counter(month.days.values())
            sums = [f"{counts[status]} {status}" for status in STYLES if counts[status] and status != "published"]
            text.append(f"  {', '.join(sums)}", "dim")
        text.rstrip()
        yield text


def _legend(status: Status, number: int) -> Text:
    letter = (calendar_view.LETTERS[status], STYLES[status])
    return Text.assemble(letter, (f" {number:,} {status}", "" if number else "dim"))


def _show_unpublished(console: Console, ranges: Sequence[calendar_view.PartitionRange]) -> None:
    if not ranges:
        return
    console.print("\n[bold]not published[/bold]")
    width = max(len(partitions.name) for partitions in ranges[: calendar_view.UNPUBLISHED])
    for partitions in ranges[: calendar_view.UNPUBLISHED]:
        entry = partitions.entries[-1]
        line = Text.assemble(f"{partitions.name:{width}}  ", (entry.status, STYLES[entry.status]))
        if entry.since:
            line += f" since {calendar_view.minute(entry.since)}"
        if spent := spent_text(entry.failure or {}):
            line += f" ({spent} spent)"
        if entry.why:
            line += f": {'; '.join(map(first_line, entry.why))}"
        console.print(line, soft_wrap=True)  # one line, which is never cut
    if more_ranges := ranges[calendar_view.UNPUBLISHED :]:
        console.print(f"and {sum(len(partitions.entries) for partitions in more_ranges):,} more")


def _show_published(console: Console, entries: Sequence[PartitionStatus]) -> None:
    if not entries:
        return
    numbers = [Column(name, justify="right") for name in ("rows", "quarantined", "seconds")]
    newest = [entry.receipt or {} for entry in entries[: calendar_view.PUBLISHED]]
    spent = list(map(spent_in, newest))
    amounts = {name: form for name, form in AMOUNTS.items() if any(name in record for record in spent)}
    numbers += [Column(name, justify="right") for name in amounts]
    table = Table(Column("published", no_wrap=True, min_width=10), *numbers, "at (UTC)", box=None, pad_edge=False)
    for entry, receipt, record in zip(entries, newest, spent, strict=False):
        counts = [f"{receipt['rows_out']:,}", f"{receipt['rows_quarantined']:,}", f"{receipt['seconds']:,.1f}"]
        counts += [form(record[name]) if name in record else "" for name, form in amounts.items()]
        table.add_row(entry.partition, *counts, calendar_view.minute(receipt["finished_at"]))
    console.print("", table, sep="\n")
    if len(entries) > calendar_view.PUBLISHED:
        console.print(f"and {len(entries) - calendar_view.PUBLISHED:,} more")
    for reason in dict.fromkeys(reason for entry in entries for reason in entry.why):
        console.print(Text(reason, "yellow"))


@contextmanager
def input_progress() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many partitions have been checked. It takes this number and the total.

    It draws a bar on stderr, or without a terminal prints a line every 5 s.
    """
    console = VisibleConsole(stderr=True, highlight=False)
    if console.is_terminal:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("checking inputs")
            yield lambda number, total: progress.update(bar, completed=number, total=total)
        return
    line_time = time.monotonic()

    def print_progress(number: int, total: int) -> None:
        nonlocal line_time
        if number in (0, total) or time.monotonic() - line_time > SECONDS_BETWEEN:
            line_time = time.monotonic()
            console.print(f"checked the inputs of {number:,} of {total:,} partitions")

    yield print_progress
