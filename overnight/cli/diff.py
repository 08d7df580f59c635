"""`overnight diff`: print what differs between two results of a job, by `row_id`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from overnight.cli.command import EXIT_STATUS, job_argument, json_option, print_result, read_errors, settings_option

if TYPE_CHECKING:
    from overnight.flows.ledger.differences import Differences, OnlyIn

DIFFERENCES = "For diff, 0 is the same, 1 is different, and 2 also means that the results cannot be compared."


@click.command(epilog=f"{EXIT_STATUS} {DIFFERENCES}")
@job_argument
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--partition", metavar="D", help="The day of a name without one; default: the newest with such a result.")
@settings_option
@json_option
def diff(job_path: Path, a: str, b: str, partition: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Show what differs between two results of a job.

    A and B are names of results. The name is a day as YYYY-MM-DD, `all`, `published`, `sample` for the newest sample,
    or `sample-2` for the second. A day and a slash may precede it, as in 2026-11-19/sample-2.
    """
    from overnight.flows.job.loading import load_job
    from overnight.flows.ledger.results import Results
    from overnight.tasks.errors import OvernightError

    try:
        with read_errors():
            job = load_job(job_path, settings)
            results = Results(job, str(job_path), job.published)
            result_a, result_b = results.named(a, partition), results.named(b, partition)
            from overnight.flows.ledger.differences import compare

            differences = compare(result_a, result_b)
    except OvernightError as error:
        click.secho(str(error), fg="red", err=True)
        sys.exit(2)
    document = as_document(differences) if as_json else None
    print_result(document, as_json, lambda: show_differences(differences))
    sys.exit(1 if differences else 0)


def show_differences(differences: "Differences") -> None:
    """Print the counts of the differences and a few examples of each on stdout."""
    from rich.text import Text

    from overnight.api.console import VisibleConsole
    from overnight.cli.columns_view import show_statistics

    console = VisibleConsole(highlight=False)

    def print_line(line: str, style: str = "") -> None:
        console.print(Text(line, style, overflow="fold"))

    a, b = differences.a, differences.b
    print_line(f"{a.job.name}: A is {a.name}, B is {b.name}", "bold")
    for name, peer, only in (("A", "B", differences.only_a), ("B", "A", differences.only_b)):
        if only.rows:
            print_line(_rows_of_one(name, peer, only))
    for name, columns in (("A", differences.columns_only_a), ("B", differences.columns_only_b)):
        if columns:
            print_line(f"  columns only in {name}: {', '.join(columns)}")
    print_line(f"  rows in both: {differences.in_both:,}, changed: {differences.changed:,}")
    for name, column in differences.columns.items():
        print_line(f"  {name}: {column.rows:,} changed")
        for row_id, before, after in column.examples:
            console.print(Text(f"    {row_id}: {_change(before, after)}"), no_wrap=True, overflow="ellipsis")
    if differences.statistics:
        print_line("  all rows of A -> all rows of B, by the statistics of their columns:")
        show_statistics(console, differences.statistics)


def as_document(differences: "Differences") -> dict[str, Any]:
    """Return the differences as JSON values, as `--json` prints them."""
    from overnight.flows.report.columns import as_json as statistics_as_json

    columns = {}
    for name, column in differences.columns.items():
        examples = [{"row_id": row_id, "a": _json(a), "b": _json(b)} for row_id, a, b in column.examples]
        columns[name] = {"rows_changed": column.rows, "examples": examples}
    return {
        "job": differences.a.job.name,
        "a": differences.a.name,
        "b": differences.b.name,
        "rows_in_both": differences.in_both,
        "rows_changed": differences.changed,
        "only_a": vars(differences.only_a),
        "only_b": vars(differences.only_b),
        "columns_only_a": differences.columns_only_a,
        "columns_only_b": differences.columns_only_b,
        "columns": columns,
        "statistics": list(map(statistics_as_json, differences.statistics)),
    }


def _rows_of_one(name: str, peer: str, only: "OnlyIn") -> str:
    line = f"  only in {name}: {only.rows:,} rows"
    if only.quarantined_in_other:
        line += f", {only.quarantined_in_other:,} of them quarantined in {peer}"
    line += f": {', '.join(only.examples)}"
    return line + ", ..." * (only.rows > len(only.examples))


def _change(before: Any, after: Any) -> str:
    """Return both values, and how far they are apart if their short forms are the same."""
    from overnight.flows.preview_cells import text_of

    old, new = text_of(before), text_of(after)
    if old != new:
        return f"{old or 'null'} -> {new or 'null'}"
    try:
        distance = max(abs(x - y) for x, y in zip(before, after, strict=True))
        return f"{old}, the numbers differ by at most {distance:.2g}"
    except (TypeError, ValueError):
        return old if isinstance(before, bytes) else f"{before!r} -> {after!r}"


def _json(value: Any) -> Any:
    """Return a value as JSON has it: bytes in Base64, times as text."""
    import pyarrow as pa

    from overnight.tasks.write.in_process import json_lines

    if hasattr(value, "tolist"):
        value = value.tolist()
    [line] = json_lines(pa.table({"value": [value]}))
    return json.loads(line)["value"]
