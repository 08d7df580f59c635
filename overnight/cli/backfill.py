"""`overnight backfill`: run the partitions of a range of dates, and print the status of each."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
@click.option(
    "--with-upstream",
    is_flag=True,
    help="First do the same with the jobs that this job reads or follows, and with the jobs that these need.",
)
@run_options
def backfill(
    job_path: Path, dry_run: bool, with_upstream: bool, as_json: bool, quiet: bool, verbose: bool, **options: Any
) -> None:
    """Run the partitions of a range of dates.

    By default these are the missing and the failed ones. Each partition publishes separately.
    """
    results = []
    with started(quiet, verbose) as screen:
        options |= parsed_days(options["start"], options["end"])
        if not dry_run:
            start_fork_server()
        for path, days in _jobs(job_path, options, with_upstream):
            results.append(_backfilled(path, screen, {**options, **days}, dry_run))
    if as_json:
        print_result([item for result in results for item in result.as_json(with_upstream)], True, lambda: None)
    for result in results:
        if not as_json and not (quiet and result.has_run):
            result.show()
        if result.failure:
            click.secho(f"{result.failure.status}: {result.failure}", fg="red", err=True)
    if any(result.failure for result in results):
        sys.exit(1)


@dataclass(frozen=True)
class _Backfilled:
    """The backfill of one job: its plan or, if `has_run`, the status of each partition that it ran."""

    job: "Job"
    nothing: str  # the reason for an empty plan
    plan: "Sequence[Step]" = ()
    entries: "Sequence[PartitionStatus]" = ()
    has_run: bool = False
    failure: "OvernightError | None" = None

    def as_json(self, with_job: bool) -> list[dict[str, Any]]:
        items = [item.as_json() for item in (self.entries if self.has_run else self.plan)]
        return [{"job": self.job.name, **item} for item in items] if with_job else items

    def show(self) -> None:
        if self.nothing:
            click.echo(self.nothing)
        elif self.has_run:
            show_outcomes(self.job, self.entries)
        else:
            show_steps(self.job, self.plan)


def _jobs(job_path: Path, options: dict[str, Any], with_upstream: bool) -> list[tuple[Path, dict[str, Any]]]:
    """Return the files of the jobs to backfill, with the options that differ for each, the first to run first."""
    jobs: list[tuple[Path, dict[str, Any]]] = []
    if with_upstream:
        from overnight.flows.job.loading import load_job
        from overnight.flows.ledger.upstreams import chain_of
        from overnight.tasks.errors import JobError

        if options["resume"]:
            raise JobError("--with-upstream: expected --start and --end with it, found --resume.")
        for member in chain_of(load_job(job_path), options["start"], options["end"]):
            jobs.append((member.job_file, {"start": member.start, "end": member.end, "settings": ()}))
    return [*jobs, (job_path, {})]


def _backfilled(job_path: Path, screen: "Screen", options: dict[str, Any], dry_run: bool) -> _Backfilled:
    from overnight.flows.job.loading import load_job
    from overnight.flows.ledger.partition_status import read_ledger

    job = load_job(job_path)
    if not job.is_dated and not options["start"]:  # one of the jobs that the named one needs
        entries = read_ledger(job)
        if dry_run or entries[0].status == "published":
            return _Backfilled(job, f"{job.name}: its only partition is {entries[0].status}")
        failure = run_all(job_path, job, screen, reason=masked(options["reason"]))
        return _Backfilled(job, "", entries=read_ledger(job), has_run=True, failure=failure)
    job, request, steps = _plan(job_path, screen, options, dry_run)
    if not steps:
        from overnight.flows.backfill_plan import nothing_to_do

        return _Backfilled(job, nothing_to_do(job, request))
    if dry_run:
        from overnight.flows.ledger.remembered import remembered_rows

        for line in remembered_rows(job):
            screen.say(str(line))
        return _Backfilled(job, "", plan=steps)
    from overnight.flows.backfill_plan import entries_of

    failure = run_backfill(job_path, job, screen, options)
    return _Backfilled(job, "", entries=entries_of(job, request, steps), has_run=True, failure=failure)


def parsed_days(start: str | None, end: str | None) -> dict[str, "date | None"]:
    from overnight.flows.schedule.partitions import check_range, parse_day

    first, last = (parse_day(day) if day else None for day in (start, end))
    if first and last:
        check_range(first, last)
    return {"start": first, "end": last}


def _plan(
    job_path: Path, screen: "Screen", options: dict[str, Any], dry_run: bool
) -> tuple["Job", "Request", list["Step"]]:
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
        is_dry=dry_run,
    )
    if steps and not resume and (partitions := left_out(job, request, steps)):
        screen.say(f"left out: {partitions}")
    return job, request, steps


def run_backfill(job_path: Path, job: "Job", screen: "Screen", options: dict[str, Any]) -> "OvernightError | None":
    """Run the backfill, and return the error that ended it, or None."""
    with _error_kept(job) as errors:
        from overnight.api.local_run import backfill_locally

        backfill_locally(job_path, job, screen, **options)
    return errors[0] if errors else None


def run_all(job_path: Path, job: "Job", screen: "Screen", **options: Any) -> "OvernightError | None":
    """Run the only partition of a job, and return the error that ended the run, or None.

    `options` are parameters of the flow `batch_inference`; the others have their defaults.
    """
    with _error_kept(job) as errors:
        from overnight.api.local_run import run_locally

        defaults: dict[str, Any] = {"force": False, "limit_rows": 0, "settings": [], "retry_quarantined": False}
        run_locally(job_path, job, screen, partition="all", **(defaults | options))
    return errors[0] if errors else None


@contextlib.contextmanager
def _error_kept(job: "Job") -> Iterator[list["OvernightError"]]:
    """Run the body, which runs the job, and add the error that ended it to the list."""
    from overnight.tasks.errors import OvernightError
    from overnight.tasks.infer.kinds import imports

    errors: list[OvernightError] = []
    fork_server.preload(imports(job.models))
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints the reports of its nodes to stdout
        try:
            yield errors
        except OvernightError as error:
            errors.append(error)


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
    if steps:
        console.print(step_table([(step, ", ".join(map(first_line, step.why))) for step in steps]))
    console.print(f"{job.name}: would run {summary(steps)}", markup=False)


def step_table(steps: "Sequence[tuple[Step, str]]") -> Table:
    """Return the plan of a backfill as a table, from its steps with their reasons."""
    has_cost = any(step.cost is not None for step, _ in steps)
    table = _table("rows, about", "time", "80 %", *["cost"] * has_cost)
    for step, reason in steps:
        numbers = _forecast(step)
        if has_cost:
            numbers.append("?" if step.cost is None else f"{step.cost:,.2f}")
        table.add_row(step.partition, step.entry.status, *numbers, escape(reason))
    return table


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
