"""`overnight backfill`: run the partitions of a range of dates, and print the status of each."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Column, Table

from overnight.cli.command import (
    EXIT_STATUS,
    exit_on_error,
    print_result,
    run_options,
    start_fork_server,
)
from overnight.cli.console import VisibleConsole
from overnight.tasks.config.masking import masked
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
    type=click.Choice(["missing", "failed", "stale", "all"]),
    multiple=True,
    default=["missing", "failed"],
    show_default=True,
    help="The statuses of the partitions to run; you may repeat this option.",
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
    if not dry_run:
        start_fork_server()
    from overnight.flows.backfill_plan import entries_of, nothing_to_do, planned
    from overnight.flows.job.loading import JobFile
    from overnight.flows.schedule.partitions import parse_day
    from overnight.tasks.errors import OvernightError
    from overnight.tasks.infer.kinds import imports

    resume = options["resume"]
    chosen = {name: options[name] for name in ("select", "order", "settings")} | {"reason": masked(options["reason"])}
    with exit_on_error():
        first, last = (parse_day(day) if day else None for day in (start, end))
        job, request, steps = planned(
            JobFile(job_path), resume or "new", first, last, **chosen, is_resumed=bool(resume)
        )
    if not steps:
        print_result([], as_json, lambda: click.echo(nothing_to_do(job, request)))
        return
    if dry_run:
        print_result([step.as_json() for step in steps], as_json, lambda: show_steps(job, steps))
        return
    failure = None
    fork_server.preload(imports(job.models))
    from overnight.cli.local_run import backfill_locally

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


def show_steps(job: "Job", steps: "Sequence[Step]") -> None:
    """Print the plan of a backfill and its estimated time as a table on stdout."""
    from overnight.flows.backfill_plan import summary

    console = VisibleConsole(highlight=False)
    table = Table("partition", "status", "why", Column("rows, about", justify="right"), Column("s", justify="right"))
    for step in steps:
        rows, seconds = (f"{value:,.0f}" if value is not None else "?" for value in (step.rows, step.seconds))
        table.add_row(step.partition, step.entry.status, ", ".join(step.why), rows, seconds)
    if steps:
        console.print(table)
    console.print(f"{job.name}: would run {summary(steps)}", markup=False)


def show_outcomes(job: "Job", entries: "Sequence[PartitionStatus]") -> None:
    """Print the status of each partition of a backfill as a table on stdout."""
    console = VisibleConsole(highlight=False)
    table = Table("partition", "status", Column("rows out", justify="right"), Column("s", justify="right"), "why")
    for entry in entries:
        receipt = entry.receipt or {}
        numbers = (f"{receipt.get('rows_out', 0):,}", f"{receipt.get('seconds', 0):,.0f}") if receipt else ("", "")
        table.add_row(entry.partition, entry.status, *numbers, ", ".join(entry.why))
    if entries:
        console.print(table)
    done = sum(entry.status == "published" for entry in entries)
    console.print(f"{job.name}: {done} of {len(entries)} partitions published", markup=False)
