"""`overnight preview`: run a few rows of a job in this process, and show them."""

import contextlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from overnight.api.console import VisibleConsole
from overnight.cli.command import EXIT_STATUS, exit_on_error, job_argument, json_rows_option, settings_option

if TYPE_CHECKING:
    from overnight.flows.job.model import Job
    from overnight.flows.preview import Preview


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
    from overnight.flows.preview import preview as run_first_rows

    try:
        with contextlib.redirect_stdout(sys.stderr):  # for what models and steps print
            result = run_first_rows(job, rows, day)
    except OvernightError as error:
        click.secho(f"{error.status}: {job.name}/{day} in {error.stage}: {error}", fg="red", err=True)
        sys.exit(1)
    if as_json:
        from overnight.tasks.write.in_process import json_lines

        sys.stdout.buffer.writelines(json_lines(result.table))
        console = VisibleConsole(highlight=False, stderr=True)
        show_summary(result, console)
    else:
        console = VisibleConsole(highlight=False)
        show_preview(result)
    with exit_on_error():
        show_estimate(job, result, console)
    if len(result.quarantine) and not len(result):
        sys.exit(1)


def show_preview(preview: "Preview") -> None:
    """Print a preview on stdout: the rows with their pictures, the failed rows, the counts and the seconds."""
    from overnight.cli.rows_view import show_pictures, show_rows

    console = VisibleConsole(highlight=False)
    if len(preview):
        show_rows(console, preview.table)
        show_pictures(console, (preview.left_out, preview.table))
    show_summary(preview, console)


def show_summary(preview: "Preview", console: Console) -> None:
    """Print everything of a preview except its rows: the failed rows, the counts, the warnings and the seconds."""
    for row in preview.quarantine.to_pylist():
        reason = f"{row['error_type']}: {row['error_message']}"
        console.print(Text(f"{row['row_id']}  quarantined in {row['stage']}: {reason}", "red", overflow="fold"))
    counts = f"{len(preview):,} rows, {preview.filtered:,} filtered, {len(preview.quarantine):,} quarantined"
    console.print(f"[bold]{preview.job}/{preview.partition}[/bold]: {counts}")
    if names := preview.left_out.column_names[1:]:
        console.print(f"  columns left out: {', '.join(names)} (see sink.keep_columns)", markup=False)
    for warning in preview.warnings:
        console.print(f"  warning: {warning}", markup=False)
    times = Table(Column("stage"), Column("seconds", justify="right"), box=None, pad_edge=False)
    for stage, seconds in preview.seconds.items():
        times.add_row(Text(stage), f"{seconds:.3f}")
    console.print("", times, sep="\n")


def show_estimate(job: "Job", preview: "Preview", console: Console) -> None:
    """Print what 1,000 rows like these will cost and take, if models ran on them."""
    from overnight.flows.estimate import estimate_of, overrun

    if not (job.models and len(preview)):
        return
    lines = [*estimate_of(job, preview, None).lines(), "  for all rows: overnight validate JOB.yaml --estimate"]
    if sentence := overrun(job, preview):
        lines.append(f"  budget: {sentence}")
    console.print("", *lines, sep="\n", markup=False, soft_wrap=True)
