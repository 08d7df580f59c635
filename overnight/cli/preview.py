"""`overnight preview`: run a few rows of a job in this process, and show them."""

import contextlib
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error, job_argument, json_rows_option, settings_option


@click.command(epilog=f"{EXIT_STATUS} A preview in which rows fail and none succeeds is a failure.")
@job_argument
@click.option(
    "--rows", metavar="N", type=click.IntRange(min=1), default=8, show_default=True, help="The number of source rows."
)
@click.option(
    "--partition",
    metavar="D",
    help="The day to read, as YYYY-MM-DD; default: today, moved by schedule.offset_days (-1).",
)
@settings_option
@json_rows_option
def preview(job_path: Path, rows: int, partition: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Run a few rows through all steps and models, and show them.

    Everything runs in this process, without Ray and Prefect. Nothing is published or kept.
    """
    from overnight.flows.job.loading import load_job
    from overnight.flows.schedule.partitions import resolve_partition
    from overnight.tasks.errors import OvernightError

    with exit_on_error():
        job = load_job(job_path, settings)
        day = resolve_partition(job, partition, None, datetime.now(UTC))
    from overnight.flows import preview as previews

    try:
        with contextlib.redirect_stdout(sys.stderr):  # for what models and steps print
            found = previews.preview(job, rows, day)
    except OvernightError as error:
        click.secho(f"{error.status}: {job.name}/{day} in {error.stage}: {error}", fg="red", err=True)
        sys.exit(1)
    from overnight.api.console import VisibleConsole
    from overnight.cli.preview_view import show_preview, show_rest
    from overnight.tasks.write.in_process import json_lines

    if as_json:
        sys.stdout.buffer.writelines(json_lines(found.table))
        show_rest(found, VisibleConsole(highlight=False, stderr=True))
    else:
        show_preview(found)
    sys.exit(1 if len(found.quarantine) and not len(found) else 0)
