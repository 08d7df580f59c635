"""Print a comparison on the terminal: the verdict, the labels that flip, distances, speed and cost."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from overnight.api.console import VisibleConsole
from overnight.cli.columns_view import show_statistics

if TYPE_CHECKING:
    from overnight.flows.compare.columns import Compared
    from overnight.flows.compare.comparison import Comparison, OneSided
    from overnight.flows.compare.sides import Side

COLOURS = {"trust": "green", "look": "yellow", "no": "red"}


def show_comparison(comparison: "Comparison") -> None:
    """Print a comparison on stdout."""
    from overnight.flows.compare.words import level_of, sentences, title_of

    console = VisibleConsole(highlight=False)
    level = level_of(comparison)
    _say(console, f"A is {comparison.a.name}, B is {comparison.b.name}", "bold")
    _say(console, title_of(comparison), f"bold {COLOURS[level]}")
    for line in sentences(comparison):
        _say(console, f"  {line}")
    for name, peer, only in (("A", "B", comparison.only_a), ("B", "A", comparison.only_b)):
        if only.rows:
            _say(console, _one_sided(name, peer, only))
    for column in comparison.columns:
        _show_column(console, column)
    if comparison.same:
        _say(console, f"  no difference: {', '.join(comparison.same)}", "dim")
    show_statistics(console, comparison.statistics)
    console.print(_sides(comparison))


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style, overflow="fold"))


def _one_sided(name: str, peer: str, only: "OneSided") -> str:
    line = f"  only in {name}: {only.rows:,} rows"
    if only.quarantined:
        line += f", {only.quarantined:,} of them quarantined in {peer}"
    if only.examples:
        line += f": {', '.join(only.examples)}" + ", ..." * (only.rows > len(only.examples))
    return line


def _show_column(console: Console, column: "Compared") -> None:
    from overnight.flows.compare.words import distances_of
    from overnight.flows.report.page import share, text_of_data

    if column.kind in ("number", "vector"):
        _say(console, f"  {column.name}: {distances_of(column)}")
        return
    _say(console, f"  {column.name}: {share(column.agreement.share)} agree, {int(column.differs.sum()):,} rows differ")
    for flip in column.flips:
        line = f"    {flip.rows:>5,} x {text_of_data(flip.a, 60)} -> {text_of_data(flip.b, 60)}"
        console.print(Text(line), no_wrap=True, overflow="ellipsis")
    if column.more_flips:
        _say(console, f"    and {column.more_flips:,} more pairs of labels")


def _sides(comparison: "Comparison") -> Table:
    headings = (Column("rows/s", justify="right"), Column("load, s", justify="right"))
    table = Table(Column(""), *headings, Column("cost of 1,000", justify="right"), box=None, pad_edge=False)
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        table.add_row(name, *_measures(side))
    return table


def _measures(side: "Side") -> list[str]:
    from overnight.flows.report.page import number

    return [number(value) for value in (side.rows_per_second, side.load_seconds, side.cost_per_1000)]
