"""`overnight diff`: print what differs between two results of a job, by `row_id`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from overnight.cli.command import EXIT_STATUS, job_argument, json_option, print_result, read_errors, settings_option

if TYPE_CHECKING:
    from rich.console import Console

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
            results = Results(load_job(job_path, settings), str(job_path))
            left, right = (results.named(name, partition) for name in (a, b))
            from overnight.flows.ledger.differences import compare

            found = compare(left, right)
    except OvernightError as error:
        click.secho(str(error), fg="red", err=True)
        sys.exit(2)
    print_result(as_document(found) if as_json else None, as_json, lambda: show_differences(found))
    sys.exit(1 if found else 0)


def show_differences(found: "Differences") -> None:
    """Print the counts of the differences and a few examples of each on stdout."""
    from rich.text import Text

    from overnight.api.console import VisibleConsole

    console = VisibleConsole(highlight=False)
    title = f"{found.a.job.name}: A is {found.a.name}, B is {found.b.name}"
    console.print(Text(title, "bold", overflow="fold"))
    for name, only in (("A", found.only_a), ("B", found.only_b)):
        _show_only(console, name, only)
    for name, columns in (("A", found.columns_only_a), ("B", found.columns_only_b)):
        if columns:
            console.print(Text(f"  columns only in {name}: {', '.join(columns)}", overflow="fold"))
    console.print(f"  rows in both: {found.in_both:,}, changed: {found.changed:,}")
    for name, changed in found.columns.items():
        console.print(Text(f"  {name}: {changed.rows:,} changed", overflow="fold"))
        for row_id, before, after in changed.examples:
            console.print(Text(f"    {row_id}: {_change(before, after)}"), no_wrap=True, overflow="ellipsis")


def as_document(found: "Differences") -> dict[str, Any]:
    """Return the differences as JSON values, as `--json` prints them."""
    return {
        "job": found.a.job.name,
        "a": found.a.name,
        "b": found.b.name,
        "rows_in_both": found.in_both,
        "rows_changed": found.changed,
        "only_a": vars(found.only_a),
        "only_b": vars(found.only_b),
        "columns_only_a": found.columns_only_a,
        "columns_only_b": found.columns_only_b,
        "columns": {
            name: {
                "rows_changed": changed.rows,
                "examples": [
                    {"row_id": row_id, "a": _json(before), "b": _json(after)}
                    for row_id, before, after in changed.examples
                ],
            }
            for name, changed in found.columns.items()
        },
    }


def _show_only(console: "Console", name: str, only: "OnlyIn") -> None:
    from rich.text import Text

    if not only.rows:
        return
    other = "B" if name == "A" else "A"
    quarantined = f", {only.quarantined_in_other:,} of them quarantined in {other}" if only.quarantined_in_other else ""
    more = ", ..." if only.rows > len(only.examples) else ""
    line = f"  only in {name}: {only.rows:,} rows{quarantined}: {', '.join(only.examples)}{more}"
    console.print(Text(line, overflow="fold"))


def _change(before: Any, after: Any) -> str:
    """Return both values, and how far they are apart if their short forms are the same."""
    from overnight.flows.preview_cells import text_of

    texts = [text_of(value) for value in (before, after)]
    if texts[0] != texts[1]:
        return f"{texts[0] or 'null'} -> {texts[1] or 'null'}"
    try:
        apart = max(abs(one - other) for one, other in zip(before, after, strict=True))
        return f"{texts[0]}, the numbers differ by at most {apart:.2g}"
    except (TypeError, ValueError):
        return texts[0] if isinstance(before, bytes) else f"{before!r} -> {after!r}"


def _json(value: Any) -> Any:
    """Return a value as JSON has it: bytes in Base64, times as text."""
    import pyarrow as pa

    from overnight.tasks.write.in_process import json_lines

    value = value.tolist() if hasattr(value, "tolist") else value
    [line] = json_lines(pa.table({"value": [value]}))
    return json.loads(line)["value"]
