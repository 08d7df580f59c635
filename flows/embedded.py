"""A run in this process: a local Prefect server, Ray inside, progress in the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from prefect import tags

from flows.attempt import describe_run, fresh_receipt
from flows.batch_inference import batch_inference
from flows.job import Job
from flows.server import prefect_server, ui_address
from flows.terminal import progress_bars
from tasks.errors import explain


def run_here(
    job_path: Path,
    job: Job,
    partition: str,
    force: bool,
    reason: str,
    limit_rows: int,
    settings: Sequence[str],
) -> dict[str, Any]:
    """The receipt of one partition, run now. Raises `OvernightError`."""
    try:
        if not force and (published := fresh_receipt(job, describe_run(job, partition, reason, limit_rows))):
            return published  # at once, without a server or Ray
        with prefect_server() as url, tags(f"job:{job.name}", f"partition:{partition}"):
            click.echo(f"Prefect UI: {ui_address(url)}", err=True)
            with progress_bars(job.name):
                return batch_inference(partition, force, reason, limit_rows, list(settings), job=str(job_path))
    except Exception as error:
        raise explain(error, "plan") from None
