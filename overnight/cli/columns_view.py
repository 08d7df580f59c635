"""Print the statistics of the columns of two results, A and B, for `overnight diff` and `overnight compare`."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from overnight.flows.report.columns import Column, Figure

SHOWN = 5  # values whose shares differ the most, of a column


def show_statistics(console: Console, columns: "list[Column]") -> None:
    """Print a block for each column: its drift, and the figures of A and B. Columns with drift come first."""
    from overnight.flows.report.page import number

    for column in columns:
        mark = Text(" drift", "red") if column.has_drift else Text()
        console.print(Text(f"  {column.name}", "bold").append(mark).append(f" ({column.type})", "dim"))
        for drift in column.drift:
            origin = "checks.drift" if drift.is_checked else "no bound is set; marked beyond"
            line = f"    distance of the {drift.figure}: {number(drift.distance)} ({origin} {number(drift.bound)})"
            console.print(Text(line))
        for figure in _chosen(column):
            console.print(Text(f"    {figure.name}: {_value(figure, figure.before)} -> {_value(figure, figure.now)}"))


def _chosen(column: "Column") -> "list[Figure]":
    """Return all figures but the shares of values that differ little, if there are many."""
    values = [figure for figure in column.figures if figure.kind == "value"]
    values.sort(key=lambda figure: -abs((figure.now or 0) - (figure.before or 0)))
    return [*values[:SHOWN], *(figure for figure in column.figures if figure.kind != "value")]


def _value(figure: "Figure", value: float | None) -> str:
    from overnight.flows.report.page import number, share

    return number(value) if figure.kind == "number" else share(value)
