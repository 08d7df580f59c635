"""`overnight backfill`: run the partitions of a range of dates, and print the status of each."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from overnight.api.console import VisibleConsole
from overnight.cli.command import EXIT_STATUS, print_result, run_options, start_fork_server, started
from overnight.tasks.config.masking import masked
from overnight.tasks.engine.progress_text import duration
from overnight.tasks.errors import first_line
from overnight.tasks.workers import fork_server

if TYPE_CHECKING:
    from datetime import date

    from overnight.api.progress_screen import Screen
    from overnight.flows.backfill_plan import Request, Step
    from overnight.flows.job.model import Job
    from overnight.flows.ledger.partition_status import PartitionStatus
    from overnight.tasks.errors import OvernightError


@click.command(epilog=EXIT_STATUS)
@click.option("--start", metavar="D", help="The first day, as YYYY-MM-DD.")
@click.option("--end", metavar="D", help="The last day, as YYYY-MM-DD; it runs too.")
@click.option("--where", metavar="C=V", multiple=True, help="Only these partitions, such as region=eu; repeatable.")
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
    "--dry-run", is_flag=True, help="Only print the plan: the partitions, the reasons, and the estimated time and cost."
)
@click.option("--resume", metavar="ID", default="", help="Run the unfinished partitions of an earlier backfill.")
@run_options
def backfill(job_path: Path, dry_run: bool, as_json: bool, quiet: bool, verbose: bool, **options: Any) -> None:
    """Run the partitions of a range of dates.

    By default these are the missing and the failed ones. Each partition publishes separately.
    """
    failure = None
    with started(quiet, verbose) as screen:
        options |= _days(options["start"], options["end"])
        if not dry_run:
            start_fork_server()
        job, request, steps = _plan(job_path, screen, options)
        if steps and not dry_run:
            failure = _run(job_path, job, screen, options)
    if not steps:
        from overnight.flows.backfill_plan import nothing_to_do

        print_result([], as_json, lambda: click.echo(nothing_to_do(job, request)))
        return
    if dry_run:
        print_result(steps, as_json, lambda: show_steps(job, steps))
        return
    from overnight.flows.backfill_plan import entries_of

    entries = entries_of(job, request, steps)
    if as_json or not quiet:
        print_result(entries, as_json, lambda: show_outcomes(job, entries))
    if failure:
        click.secho(f"{failure.status}: {failure}", fg="red", err=True)
        sys.exit(1)


def _days(start: str | None, end: str | None) -> dict[str, "date | None"]:
    from overnight.flows.schedule.partitions import check_range, parse_day

    first, last = (parse_day(day) if day else None for day in (start, end))
    if first and last:
        check_range(first, last)
    return {"start": first, "end": last}


def _plan(job_path: Path, screen: "Screen", options: dict[str, Any]) -> tuple["Job", "Request", list["Step"]]:
    """Return the plan of a backfill, and print which partitions of the range it leaves out."""
    from overnight.flows.backfill_plan import left_out, planned
    from overnight.flows.job.loading import JobFile

    resume = options["resume"]
    job, request, steps = planned(
        JobFile(job_path),
        resume or "new",
        options["start"],
        options["end"],
        select=options["select"],
        order=options["order"],
        settings=options["settings"],
        reason=masked(options["reason"]),
        where=options["where"],
        is_resumed=bool(resume),
    )
    if steps and not resume and (partitions := left_out(job, request, steps)):
        screen.say(f"left out: {partitions}")
    return job, request, steps


def _run(job_path: Path, job: "Job", screen: "Screen", options: dict[str, Any]) -> "OvernightError | None":
    """Run the backfill, and return the error that ended it, or None."""
    from overnight.tasks.errors import OvernightError
    from overnight.tasks.infer.kinds import imports

    fork_server.preload(imports(job.models))
    from overnight.api.local_run import backfill_locally

    with contextlib.redirect_stdout(sys.stderr):  # Ray prints the reports of its nodes to stdout
        try:
            backfill_locally(job_path, job, screen, **options)
        except OvernightError as error:
            return error
    return None


def _table(*numbers: str) -> Table:
    """Return a table of partitions. A narrow terminal does not cut the names and the statuses."""
    table = Table(box=None, pad_edge=False)
    table.add_column("partition", no_wrap=True, min_width=len("2026-11-27"))
    table.add_column("status", no_wrap=True, min_width=len("published"))
    for name in numbers:
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("why", overflow="fold")
    return table


def show_steps(job: "Job", steps: "Sequence[Step]") -> None:
    """Print the plan of a backfill, with the time and the cost of each partition, as a table on stdout."""
    from overnight.flows.backfill_plan import summary

    console = VisibleConsole(highlight=False)
    has_cost = any(step.cost is not None for step in steps)
    table = _table("rows, about", "time", "80 %", *["cost"] * has_cost)
    for step in steps:
        numbers = _forecast(step)
        if has_cost:
            numbers.append("?" if step.cost is None else f"{step.cost:,.2f}")
        table.add_row(step.partition, step.entry.status, *numbers, escape(", ".join(map(first_line, step.why))))
    if steps:
        console.print(table)
    console.print(f"{job.name}: would run {summary(steps)}", markup=False)


def _forecast(step: "Step") -> list[str]:
    """Return the rows, the time and its interval of a step; question marks if they are unknown."""
    rows = "?" if step.rows is None else f"{step.rows:,}"
    if step.time is None:
        return [rows, "?", "?"]
    return [rows, duration(step.time.seconds), f"{duration(step.time.low)} to {duration(step.time.high)}"]


def show_outcomes(job: "Job", entries: "Sequence[PartitionStatus]") -> None:
    """Print the status of each partition of a backfill as a table on stdout."""
    console = VisibleConsole(highlight=False)
    table = _table("rows out", "quarantined", "s")
    for entry in entries:
        numbers = ["", "", ""]
        if entry.receipt and entry.status in ("published", "stale"):  # otherwise it may be an older publish
            numbers = [f"{entry.receipt[name]:,.0f}" for name in ("rows_out", "rows_quarantined", "seconds")]
        table.add_row(entry.partition, entry.status, *numbers, escape(", ".join(map(first_line, entry.why))))
    if entries:
        console.print(table)
    count = sum(entry.status == "published" for entry in entries)
    console.print(f"{job.name}: {count} of {len(entries)} partitions published", markup=False)
