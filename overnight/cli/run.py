"""`overnight run`: run one partition of a job on this machine or on a Ray cluster."""

import contextlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
    from overnight.flows.job.model import Job


@click.command(epilog=EXIT_STATUS)
@click.option(
    "--partition", metavar="D", help="The day to run, as YYYY-MM-DD; default: yesterday in the job's time zone."
)
@click.option("--force", is_flag=True, help="Run the partition again even if it is published and not stale.")
@click.option(
    "--limit-rows",
    metavar="N",
    type=click.IntRange(min=1),
    default=None,
    help="Run only the first N rows, and publish them to a scratch folder as a sample.",
)
@run_options
def run(
    job_path: Path,
    partition: str | None,
    force: bool,
    reason: str,
    limit_rows: int | None,
    settings: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """Run one partition of a job, and publish it.

    A partition that is published and not stale does not run again: run prints its receipt.
    """
    start_fork_server()
    from overnight.flows.job.loading import load_job
    from overnight.flows.schedule.partitions import resolve_partition
    from overnight.tasks.errors import OvernightError
    from overnight.tasks.infer.kinds import imports

    with exit_on_error():
        job = load_job(job_path, settings)
        day = resolve_partition(job, partition, None, datetime.now(UTC))
    fork_server.preload(imports(job.models))
    from overnight.cli.local_run import run_locally
    from overnight.flows.runs.attempt import describe_failure

    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints the reports of its nodes to stdout
            receipt = run_locally(job_path, job, day, force, masked(reason), limit_rows or 0, settings, verbose)
    except OvernightError as error:
        failure = describe_failure(job.name, day, error)
        if as_json:
            click.echo(json.dumps(failure, indent=2))
        click.secho(f"{error.status}: {job.name}/{day} in {error.stage}: {error}", fg="red", err=True)
        sys.exit(1)
    print_result(receipt, as_json, lambda: show_receipt(receipt, job))


def show_receipt(receipt: dict[str, Any], job: "Job") -> None:
    """Print a receipt in a few lines on stdout."""
    from overnight.tasks.storage import skipped_files

    console = VisibleConsole(highlight=False, soft_wrap=True)
    place = job.output_location(bool(receipt.get("limit_rows")))
    console.print(
        f"[bold]{receipt['job']}/{receipt['partition']}[/bold] {receipt['status']} at {receipt['finished_at']}"
    )
    console.print(
        f"  rows: {receipt['rows_in']:,} in, {receipt['rows_out']:,} out, {receipt['rows_filtered']:,} filtered, "
        f"{receipt['rows_quarantined']:,} quarantined, {receipt['rows_resumed']:,} resumed"
    )
    console.print(f"  time: {receipt['seconds']:,.1f} s, {receipt['rows_per_second']:,.1f} rows/s")
    if passed := skipped_files.told(receipt.get("passed_over", {})):
        console.print(f"  passed over: {passed}", markup=False)
    if left_out := receipt.get("left_out"):
        console.print(f"  columns left out: {', '.join(left_out)} (see sink.keep_columns)", markup=False)
    for warning in receipt.get("warnings", []):
        console.print(f"  warning: {warning}", markup=False)
    if receipt.get("logs"):
        console.print(f"  printed and logged: {receipt['logs']}", markup=False)
    for file in receipt["files"][:3]:
        console.print(f"  file: {place / file}", markup=False)
    if len(receipt["files"]) > 3:
        console.print(f"  and {len(receipt['files']) - 3} more files")
