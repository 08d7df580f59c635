"""Print the output of `overnight history`: a table with a line for each partition, then the regressions."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from overnight.api.console import VisibleConsole
from overnight.cli.status_view import STYLES
from overnight.flows.history.history import History
from overnight.flows.history.lines import Line
from overnight.flows.ledger.calendar_view import LETTERS
from overnight.flows.report.page import UNKNOWN, duration, number, share
from overnight.tasks.errors import first_line

WIDE = 150  # columns: a terminal of this width shows the generations
Cell = Callable[[Line], str]
FIGURES: dict[str, Cell] = {
    "in": lambda line: number(line.receipt.get("rows_in")),
    "out": lambda line: number(line.receipt.get("rows_out")),
    "time": lambda line: duration(line.receipt.get("seconds")),
    "rows/s": lambda line: number(line.rate),
    "cost of 1,000": lambda line: number(line.cost),
    "quarantined": lambda line: share(line.quarantined),
    "agreement": lambda line: share(line.agreement),
    "attempts": lambda line: str(line.attempts),
}


def show_history(history: History) -> None:
    """Print the lines of a job on stdout, the newest first. A figure that no line has takes no column."""
    console = VisibleConsole(highlight=False)
    if not history.lines:
        console.print(f"{history.job}: no partition of it has run here", markup=False)
        return
    lines = history.lines[::-1]
    count = f"{len(lines):,} line{'s' * (len(lines) > 1)}"
    console.print(Text(history.job, "bold") + Text(f": {count}, the newest first\n"))
    console.print(_table(lines, console))
    statuses = dict.fromkeys(line.entry.status for line in lines)
    console.print(", ".join(f"{LETTERS[status]} {status}" for status in statuses), style="dim")
    for line in lines:
        _show_remarks(console, line)


def _table(lines: Sequence[Line], console: Console) -> Table:
    names = [name for name, cell in FIGURES.items() if set(map(cell, lines)) != {UNKNOWN}]
    if all(line.attempts == 1 for line in lines):
        names.remove("attempts")
    figures = [Column(name, justify="right", no_wrap=True) for name in names]
    columns = [Column("partition", no_wrap=True), Column(""), *figures, Column("worse")]
    with_generations = console.width >= WIDE or lines[0].entry.partition == "all"
    if with_generations:
        columns.append(Column("generation", overflow="fold"))
    table = Table(*columns, box=None, pad_edge=False)
    for line in lines:
        letter = Text(LETTERS[line.entry.status], STYLES[line.entry.status])
        kinds = ", ".join(dict.fromkeys(remark.kind for remark in line.regressions))
        values = [Text(FIGURES[name](line)) for name in names]
        cells = [Text(line.entry.partition), letter, *values, Text(kinds, "yellow")]
        if with_generations:
            cells.append(Text(str(line.receipt.get("generation", "")), "dim"))
        table.add_row(*cells)
    return table


def _show_remarks(console: Console, line: Line) -> None:
    if not line.regressions and line.entry.status == "published":
        return
    title = Text(f"\n{line.entry.partition} ", "bold") + Text(line.entry.status, STYLES[line.entry.status])
    if line.entry.why:
        title += Text(f": {'; '.join(map(first_line, line.entry.why))}")
    console.print(title, soft_wrap=True)
    for remark in line.regressions:
        console.print(Text("  worse    ", "yellow") + Text(str(remark)), soft_wrap=True)
    for remark in line.changes:
        console.print(Text("  changed  ", "cyan") + Text(str(remark)), soft_wrap=True)
