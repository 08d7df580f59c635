"""`overnight show`: print the rows of a published partition, of a sample, or of the quarantine."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from overnight.cli.command import (
    EXIT_STATUS,
    exit_on_error,
    job_argument,
    json_rows_option,
    read_errors,
    settings_option,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from overnight.flows.ledger.chosen_rows import Chosen
    from overnight.flows.ledger.results import Result, Results


@click.command(epilog=f"{EXIT_STATUS} It is 0 also if no row matches.")
@job_argument
@click.option("--partition", metavar="D", help="The day, as YYYY-MM-DD; default: the newest with a result.")
@click.option(
    "-n", "count", metavar="N", type=click.IntRange(min=1), default=5, show_default=True, help="The number of rows."
)
@click.option("--quarantine", is_flag=True, help="Show the rows that failed and the reasons, also of a failed run.")
@click.option("--where", metavar="SQL", default="", help="Show the rows that meet a condition, as in filter_rows.")
@click.option("--sample", is_flag=True, help="Show the newest sample of --limit-rows.")
@click.option(
    "--number", metavar="N", type=click.IntRange(min=1), default=None, help="With --sample: an earlier one, from 1 up."
)
@click.option("--html", metavar="FILE", help="Write a page of the rows with small pictures to this path or URI.")
@settings_option
@json_rows_option
def show(
    job_path: Path,
    partition: str | None,
    count: int,
    quarantine: bool,
    where: str,
    sample: bool,
    number: int | None,
    html: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show published rows, a sample, or the quarantine.

    It reads files, and starts neither Ray nor Prefect.
    """
    if number and not sample:
        raise click.UsageError("--number counts samples: add --sample.")
    from overnight.flows.job.loading import load_job
    from overnight.flows.ledger.results import Results

    with exit_on_error(), read_errors():
        results = Results(load_job(job_path, settings), str(job_path))
        day = results.partition(partition, sample, or_failed=quarantine)
        find = find_quarantine if quarantine else find_rows
        title, found, result = find(results, day, count, where, sample, number)
        rows = result.with_images(found.table) if result else found.table
        note_unclear(found)
        if html:
            write_page(html, title, rows if quarantine else _with_inputs(results, rows))
    if as_json:
        from overnight.tasks.write.in_process import json_lines

        sys.stdout.buffer.writelines(json_lines(rows))
    elif html:
        click.echo(f"{title}\npage: {html}")
    else:
        print_rows(title, rows, quarantine, lambda shown: _with_inputs(results, shown))


def find_rows(
    results: "Results", day: str, count: int, where: str, is_sample: bool, number: int | None
) -> "tuple[str, Chosen, Result | None]":
    """Return a title, the first `count` rows that meet the condition `where`, and the result to which they belong.

    An empty `where` takes all rows. With `is_sample`, the rows come from the sample with this `number`, by default the
    newest.
    """
    from overnight.flows.ledger.chosen_rows import choose

    result = results.sample(day, number) if is_sample else results.published(day)
    found, receipt = choose(result.batches(), count, where), result.receipt
    hint = ""
    if where and not len(found.table):
        hint = f"; none meets the condition{_quarantine_hint(receipt)}"
    what = f"sample of {receipt['rows_in']:,} rows" if is_sample else "published"
    shown = f"{len(found.table):,} of {receipt['rows_out']:,} rows{hint}"
    return f"{results.job.name}/{result.name}: {what} at {receipt['finished_at']}, {shown}", found, result


def find_quarantine(
    results: "Results", day: str, count: int, where: str, is_sample: bool, number: int | None
) -> "tuple[str, Chosen, Result | None]":
    """Return a title with the most frequent reasons, the first `count` quarantined rows that meet `where`, and None.

    An empty `where` takes all rows. If the latest run failed and kept its quarantine, the rows come from that run.
    Otherwise they come from the published result, or with `is_sample` from the sample with this `number`.
    """
    from overnight.flows.ledger.chosen_rows import QUARANTINE, choose
    from overnight.tasks.write.in_process import reasons

    name = f"{results.job.name}/{day}"
    rows = None if number else results.failed_rows(day, is_sample)
    failure = None if number else results.failure(day, is_sample)
    if rows is not None and failure:
        title = f"{name}: the latest run failed in {failure['stage']} at {failure['failed_at']}, with"
    else:
        result = results.sample(day, number) if is_sample else results.published(day)
        rows, title = result.quarantine(), f"{results.job.name}/{result.name}:"
    found = choose([rows.select(QUARANTINE)], count, where)
    lines = [f"{title} {len(rows):,} quarantined, {len(found.table):,} shown", *reasons(rows)]
    return "\n  ".join(lines), found, None


def print_rows(title: str, rows: "pa.Table", are_reasons: bool, with_inputs: "Callable[[pa.Table], pa.Table]") -> None:
    """Print the title and the rows on stdout. `are_reasons` is True for rows of a quarantine.

    `with_inputs` adds the images to the rows. It is called only if the terminal draws images.
    """
    from rich.text import Text

    from overnight.api.console import VisibleConsole
    from overnight.cli.rows_view import draws_pictures, show_pictures, show_reasons, show_rows

    console = VisibleConsole(highlight=False)
    first, *others = title.split("\n")
    console.print(Text(first, "bold", overflow="fold"))
    for line in others:
        console.print(Text(line, overflow="fold"))
    if not len(rows):
        return
    if are_reasons:
        show_reasons(console, rows)
        return
    show_rows(console, rows)
    if draws_pictures(console):
        show_pictures(console, [with_inputs(rows)])


def note_unclear(found: "Chosen") -> None:
    """Print on stderr for how many rows the condition of `--where` could not be computed, if there are any."""
    if found.unclear:
        click.echo(f"{len(found.unclear):,} rows left out, the first: {found.unclear[0]}", err=True)


def write_page(file: str, title: str, rows: "pa.Table") -> None:
    """Write a page of HTML with a title, the rows, and small pictures. `file` is a path or a URI."""
    from overnight.flows.preview_html import as_page
    from overnight.tasks.storage.location import Location

    Location(file).write_bytes(as_page(title, rows).encode())


def _with_inputs(results: "Results", rows: "pa.Table") -> "pa.Table":
    from overnight.flows.ledger.chosen_rows import with_inputs

    return with_inputs(rows, results.job)


def _quarantine_hint(receipt: dict[str, Any]) -> str:
    failed = receipt["rows_quarantined"]
    return f". {failed:,} quarantined: add --quarantine to look among them" if failed else ""
