"""`overnight plan`: print what a job, or a change of it, would run beside what is published, and run it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from overnight.api.console import VisibleConsole
from overnight.cli.backfill import parsed_days, run_all, run_backfill, show_outcomes, step_table
from overnight.cli.command import EXIT_STATUS, print_result, run_options, start_fork_server, started
from overnight.tasks.config.masking import masked

if TYPE_CHECKING:
    from overnight.api.progress_screen import Screen
    from overnight.flows.change_plan import ChangePlan
    from overnight.tasks.errors import OvernightError


@click.command(epilog=EXIT_STATUS)
@click.option("--start", metavar="D", help="The first day, as YYYY-MM-DD; default: the first one that ever ran.")
@click.option("--end", metavar="D", help="The last day, as YYYY-MM-DD; default: the last one that is due.")
@click.option("--where", metavar="C=V", multiple=True, help="Only these partitions, such as region=eu; repeatable.")
@click.option(
    "--select",
    type=click.Choice(["missing", "failed", "stale", "quarantined"]),
    multiple=True,
    default=["missing", "failed", "stale", "quarantined"],
    show_default=True,
    help="The statuses of the partitions to plan; quarantined: only these rows; you may repeat this option.",
)
@click.option("--apply", is_flag=True, help="Run the plan, the newest partition first.")
@click.option(
    "--budget",
    metavar="KEY=N",
    multiple=True,
    help="What all runs may take: cost=40, tokens=2e9 or minutes=300; repeatable. Other partitions are left.",
)
@run_options
def plan(job_path: Path, apply: bool, as_json: bool, quiet: bool, verbose: bool, **options: Any) -> None:
    """Show what a changed job would run, and what that takes.

    These are the stale, failed and missing partitions, and those with quarantined rows, with the reason for each.
    Nothing runs without --apply.
    """
    failure, entries = None, None
    with started(quiet, verbose) as screen:
        from overnight.flows.backfill_plan import entries_of

        options |= parsed_days(options["start"], options["end"])
        change = _planned(job_path, options)
        if apply and change.steps:
            if not as_json:
                screen.say("\n".join(change.lines()))
            start_fork_server()
            failure = _run(job_path, change, screen)
            entries = entries_of(change.job, change.request, change.steps)
    if as_json:
        print_result(change.as_json() | {"outcomes": entries}, True, lambda: None)
    elif entries is None:
        show_changes(change)
    elif not quiet:
        show_outcomes(change.job, entries)
    if failure:
        click.secho(f"{failure.status}: {failure}", fg="red", err=True)
        sys.exit(1)


def _planned(job_path: Path, options: dict[str, Any]) -> "ChangePlan":
    from overnight.flows.backfill_plan import Request
    from overnight.flows.change_plan import plan_change
    from overnight.flows.job.loading import JobFile

    request = Request(
        id="new",
        start=options["start"],
        end=options["end"],
        select=tuple(options["select"]),
        order="newest",
        settings=tuple(options["settings"]),
        reason=masked(options["reason"]),
        where=tuple(options["where"]),
        budget=tuple(options["budget"]),
    )
    return plan_change(JobFile(job_path), request)


def _run(job_path: Path, change: "ChangePlan", screen: "Screen") -> "OvernightError | None":
    """Run the plan, and return the error that ended it, or None."""
    job, request = change.job, change.request
    if not job.is_dated:
        [step] = change.steps
        settings = [*request.settings, *change.budget.settings(job, step)]
        retries = step.is_retry
        return run_all(job_path, job, screen, reason=request.reason, settings=settings, retry_quarantined=retries)
    options: dict[str, Any] = {**vars(request), "max_concurrent": 1, "stop_on_failure": False, "resume": ""}
    del options["id"]
    return run_backfill(job_path, job, screen, options)


def show_changes(change: "ChangePlan") -> None:
    """Print a plan as a table on stdout: why each partition runs, and its time and cost."""
    console = VisibleConsole(highlight=False)
    if steps := [(item.step, item.line) for item in (*change.changes, *change.left)]:
        console.print(step_table(steps))
    for line in change.lines():
        console.print(line, markup=False, soft_wrap=True)
