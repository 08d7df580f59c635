"""`overnight backfill`: run the partitions of a range of dates, and print the status of each."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Column, Table

from overnight.api.console import VisibleConsole
from overnight.cli.command import (
    EXIT_STATUS,
    exit_on_error,
    print_result,
    run_options,
    start_fork_server,
)
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import first_line
from overnight.tasks.workers import fork_server

if TYPE_CHECKING:
    from overnight.flows.backfill_plan import Step
    from overnight.flows.job.model import Job
    from overnight.flows.ledger.partition_status import PartitionStatus


@click.command(epilog=EXIT_STATUS)
@click.option("--start", metavar="D", help="The first day, as YYYY-MM-DD.")
@click.option("--end", metavar="D", help="The last day, as YYYY-MM-DD; it runs too.")
@click.option(
    "--select",
    type=click.Choice(["missing", "failed", "stale", "quarantined", "all"]),
    multiple=True,
    default=["missing", "failed"],
    show_default=True,
    help="The statuses of the partitions to run; quarantined: only these rows; you may repeat this option.",
)
@click.option(
    "--order",
    type=click.Choice(["newest", "oldest"]),
    default="oldest",
    show_default=True,
    help="The day to begin with.",
)
@click.option(
    "--max-concurrent",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The number of partitions that run at the same time.",
)
@click.option("--stop-on-failure", is_flag=True, help="Start no more partitions after one has failed.")
@click.option(
    "--dry-run", is_flag=True, help="Only print the plan: the partitions, the reasons and the estimated time."
)
@click.option("--resume", metavar="ID", default="", help="Run the unfinished partitions of an earlier backfill.")
@run_options
def backfill(job_path: Path, start: str | None, end: str | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Run the partitions of a range of dates.

    By default these are the missing and the failed ones. Each partition publishes separately.
    """
    from overnight.flows.schedule.partitions import check_range, parse_day

    with exit_on_error():
        first, last = (parse_day(day) if day else None for day in (start, end))
        if first and last:
            check_range(first, last)
    if not dry_run:
        start_fork_server()
    from overnight.flows.backfill_plan import entries_of, left_out, nothing_to_do, planned
    from overnight.flows.job.loading import JobFile
    from overnight.tasks.errors import OvernightError
    from overnight.tasks.infer.kinds import imports

    resume = options["resume"]
    chosen = {name: options[name] for name in ("select", "order", "settings")} | {"reason": masked(options["reason"])}
    with exit_on_error():
        job, request, steps = planned(
            JobFile(job_path), resume or "new", first, last, **chosen, is_resumed=bool(resume)
        )
    if not steps:
        print_result([], as_json, lambda: click.echo(nothing_to_do(job, request)))
        return
    if not resume and (others := left_out(job, request, steps)):
        click.echo(f"left out: {others}", err=True)
    if dry_run:
        print_result([step.as_json() for step in steps], as_json, lambda: show_steps(job, steps))
        return
    failure = None
    fork_server.preload(imports(job.models))
    from overnight.api.local_run import backfill_locally

    with contextlib.redirect_stdout(sys.stderr):  # Ray prints the reports of its nodes to stdout
        try:
            backfill_locally(job_path, job, start=first, end=last, **options)
        except OvernightError as error:
            failure = error
    entries = entries_of(job, request, steps)
    print_result([entry.as_json() for entry in entries], as_json, lambda: show_outcomes(job, entries))
    if failure:
        click.secho(f"{failure.status}: {failure}", fg="red", err=True)
        sys.exit(1)


def never_cut() -> list[Column]:
    """Return table columns for a partition and for its status. A narrow terminal does not cut their values."""
    widths = {"partition": len("2026-11-27"), "status": len("published")}
    return [Column(name, no_wrap=True, min_width=width) for name, width in widths.items()]


def show_steps(job: "Job", steps: "Sequence[Step]") -> None:
    """Print the plan of a backfill and its estimated time as a table on stdout."""
    from overnight.flows.backfill_plan import summary

    console = VisibleConsole(highlight=False)
    rows_and_seconds = (Column(name, justify="right", overflow="fold") for name in ("rows, about", "s"))
    table = Table(*never_cut(), *rows_and_seconds, Column("why", overflow="fold"), box=None, pad_edge=False)
    for step in steps:
        rows, seconds = (f"{value:,.0f}" if value is not None else "?" for value in (step.rows, step.seconds))
        table.add_row(step.partition, step.entry.status, rows, seconds, escape(", ".join(map(first_line, step.why))))
    if steps:
        console.print(table)
    console.print(f"{job.name}: would run {summary(steps)}", markup=False)


def show_outcomes(job: "Job", entries: "Sequence[PartitionStatus]") -> None:
    """Print the status of each partition of a backfill as a table on stdout."""
    console = VisibleConsole(highlight=False)
    numbers = (Column(name, justify="right", overflow="fold") for name in ("rows out", "quarantined", "s"))
    table = Table(*never_cut(), *numbers, Column("why", overflow="fold"), box=None, pad_edge=False)
    counted = ("rows_out", "rows_quarantined", "seconds")
    for entry in entries:
        receipt = (entry.receipt or {}) if entry.status in ("published", "stale") else {}  # it may be an older publish
        counts = (f"{receipt[name]:,.0f}" if name in receipt else "" for name in counted)
        table.add_row(entry.partition, entry.status, *counts, escape(", ".join(map(first_line, entry.why))))
    if entries:
        console.print(table)
    done = sum(entry.status == "published" for entry in entries)
    console.print(f"{job.name}: {done} of {len(entries)} partitions published", markup=False)
