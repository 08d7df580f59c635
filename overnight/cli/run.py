"""`overnight run`: run one partition of a job on this machine or on a Ray cluster."""

import contextlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from overnight.cli.command import EXIT_STATUS, print_result, run_options, start_fork_server, started
from overnight.cli.run_view import next_steps, show_receipt
from overnight.tasks.config.masking import masked
from overnight.tasks.workers import fork_server

if TYPE_CHECKING:
    from overnight.api.progress_screen import Screen
    from overnight.flows.job.model import Job
    from overnight.tasks.errors import OvernightError


@click.command(epilog=EXIT_STATUS)
@click.option(
    "--partition",
    metavar="D",
    help="The day to run, as YYYY-MM-DD; default: today, moved by schedule.offset_days (-1).",
)
@click.option("--force", is_flag=True, help="Run the partition again even if it is published and not stale.")
@click.option(
    "--limit-rows",
    metavar="N",
    type=click.IntRange(min=1),
    default=None,
    help="Run only the first N rows, and publish them to a scratch folder as a sample.",
)
@click.option(
    "--retry-quarantined",
    is_flag=True,
    help="Run only the quarantined rows of the published partition, and publish them with its others.",
)
@click.option(
    "--ray-dashboard",
    is_flag=True,
    help="Start Ray's dashboard with the Ray of this run, and print its address. It needs RAY_AUTH_TOKEN.",
)
@run_options
def run(job_path: Path, as_json: bool, quiet: bool, verbose: bool, **options: Any) -> None:
    """Run one partition of a job, and publish it.

    A partition that is published and not stale does not run again: run prints its receipt.
    """
    options["limit_rows"] = options["limit_rows"] or 0
    if options["retry_quarantined"] and (options["force"] or options["limit_rows"]):
        raise click.UsageError("--retry-quarantined runs these rows alone: leave out --force and --limit-rows.")
    start_fork_server()
    with started(quiet, verbose) as screen:
        job, receipt, failure = _run(job_path, screen, options)
    if failure:
        _show_failure(failure, job, job_path, options, as_json)
        sys.exit(1)
    if as_json or not quiet:
        print_result(receipt, as_json, lambda: show_receipt(receipt, job, str(job_path)))


def _run(
    job_path: Path, screen: "Screen", options: dict[str, Any]
) -> tuple["Job", dict[str, Any], "OvernightError | None"]:
    """Run the partition, and return the job with the receipt or the error. Complete `options` for the flow."""
    from overnight.flows.job.loading import load_job
    from overnight.flows.schedule.partitions import only_partition
    from overnight.tasks.errors import OvernightError
    from overnight.tasks.infer.kinds import imports

    job = load_job(job_path, options["settings"])
    day = only_partition(job, options["partition"], datetime.now(UTC))
    fork_server.preload(imports(job.models))
    from overnight.api.local_run import run_locally

    options |= {"partition": day, "settings": list(options["settings"]), "reason": masked(options["reason"])}
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints the reports of its nodes to stdout
            return job, run_locally(job_path, job, screen, **options), None
    except OvernightError as error:
        return job, {}, error


def _show_failure(error: "OvernightError", job: "Job", job_path: Path, options: dict[str, Any], as_json: bool) -> None:
    """Print why a run failed, and the commands to type next."""
    from overnight.flows.runs.attempt import describe_failure
    from overnight.tasks.errors import RetryRefused

    day, limit_rows = options["partition"], options["limit_rows"]
    if as_json:
        click.echo(json.dumps(describe_failure(job.name, day, error), indent=2))
    click.secho(f"{error.status}: {job.name}/{day} in {error.stage}: {error}", fg="red", err=True)
    if isinstance(error, RetryRefused):
        return  # its message has the command to run instead
    repeats = [f"--set={setting}" for setting in options["settings"]]
    if limit_rows:
        repeats.append(f"--limit-rows={limit_rows}")
    if options["retry_quarantined"]:
        repeats.append("--retry-quarantined")
    for line in next_steps(job, day, str(job_path), job.outputs(limit_rows), repeats, error.status == "cancelled"):
        click.echo(line, err=True)
