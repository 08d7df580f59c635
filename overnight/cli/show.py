"""`overnight show`: print the rows of a published partition, of a sample, or of the quarantine."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

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

    from overnight.flows.ledger.results import Results


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
    from overnight.flows.ledger.chosen_rows import with_inputs
    from overnight.flows.ledger.results import Results

    with exit_on_error(), read_errors():
        job = load_job(job_path, settings)
        results = Results(job, str(job_path), job.samples if sample else job.published)
        day = results.partition(partition, or_failed=quarantine)
        find = find_quarantine if quarantine else find_rows
        title, rows = find(results, day, count, where, number)
        if html:
            write_page(html, title, rows if quarantine else with_inputs(rows, job))
    if as_json:
        from overnight.tasks.write.in_process import json_lines

        sys.stdout.buffer.writelines(json_lines(rows))
    elif html:
        click.echo(f"{title}\npage: {html}")
    else:
        print_rows(results, title, rows, quarantine)


def find_rows(results: "Results", day: str, count: int, where: str, number: int | None) -> "tuple[str, pa.Table]":
    """Return a title, and the first `count` rows that meet the condition `where`; an empty one takes all rows.

    Rows of samples come from the one with this `number`, by default the newest.
    """
    result = results.result(day, number)
    receipt, rows = result.receipt, _chosen(result.batches(), count, where)
    title = f"{results.job.name}/{result.name}: {result.what}"
    title += f" at {receipt['finished_at']}, {len(rows):,} of {receipt['rows_out']:,} rows"
    if where and not len(rows):
        title += "; none meets the condition"
        if receipt["rows_quarantined"]:
            title += f". {receipt['rows_quarantined']:,} quarantined: add --quarantine to look among them"
    return title, result.with_images(rows)


def find_quarantine(results: "Results", day: str, count: int, where: str, number: int | None) -> "tuple[str, pa.Table]":
    """Return a title with the most frequent reasons, and the first `count` quarantined rows that meet `where`.

    The rows come from the latest run if it failed and kept its quarantine. Otherwise they come from the published
    result, or from the sample with this `number`.
    """
    from overnight.flows.ledger.chosen_rows import QUARANTINE
    from overnight.tasks.write.in_process import reasons

    rows = None if number else results.failed_rows(day)
    failure = None if number else results.failure(day)
    if rows is not None and failure:
        title = f"{results.job.name}/{day}: the latest run failed in {failure['stage']} at {failure['failed_at']}, with"
    else:
        result = results.result(day, number)
        rows, title = result.quarantine(), f"{results.job.name}/{result.name}:"
    examples = _chosen([rows.select(QUARANTINE)], count, where)
    title += f" {len(rows):,} quarantined, {len(examples):,} shown"
    return "\n  ".join([title, *reasons(rows)]), examples


def _chosen(tables: "Iterable[pa.Table]", count: int, where: str) -> "pa.Table":
    """Return the first rows that meet a condition. Print on stderr for how many rows it could not be computed."""
    from overnight.flows.ledger.chosen_rows import choose

    choice = choose(tables, count, where)
    if choice.unclear:
        click.echo(f"{len(choice.unclear):,} rows left out, the first: {choice.unclear[0]}", err=True)
    return choice.table


def print_rows(results: "Results", title: str, rows: "pa.Table", are_reasons: bool) -> None:
    """Print the title and the rows on stdout. `are_reasons` is True for rows of a quarantine.

    Images are read only if the terminal draws them.
    """
    from rich.text import Text

    from overnight.api.console import VisibleConsole
    from overnight.cli.rows_view import draws_pictures, show_pictures, show_reasons, show_rows
    from overnight.flows.ledger.chosen_rows import with_inputs

    console = VisibleConsole(highlight=False)
    for number, line in enumerate(title.split("\n")):
        console.print(Text(line, "" if number else "bold", overflow="fold"))
    if not len(rows):
        return
    if are_reasons:
        show_reasons(console, rows)
        return
    show_rows(console, rows)
    if draws_pictures(console):
        show_pictures(console, [with_inputs(rows, results.job)])


def write_page(file: str, title: str, rows: "pa.Table") -> None:
    """Write a page of HTML with a title, the rows, and small pictures. `file` is a path or a URI."""
    from overnight.flows.preview_html import as_page
    from overnight.tasks.storage.location import Location

    Location(file).write_bytes(as_page(title, rows).encode())
