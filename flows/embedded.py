"""A run in this process: a local Prefect server, Ray inside, progress in the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from prefect import tags
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow
from prefect.states import Pending

from flows.attempt import describe_run, fresh_receipt
from flows.batch_inference import batch_inference
from flows.cancel import RunCancelled, interruptible
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
    """The receipt of one partition, run now. Raises `OvernightError`, also where the run is cancelled."""
    try:
        if not force and (published := fresh_receipt(job, describe_run(job, partition, reason, limit_rows))):
            return published  # at once, without a server or Ray
        labels = [f"job:{job.name}", f"partition:{partition}"]
        with prefect_server() as url, tags(*labels):
            click.echo(f"Prefect UI: {ui_address(url)}", err=True)
            parameters = {
                **{"partition": partition, "force": force, "reason": reason, "limit_rows": limit_rows},
                **{"settings": list(settings), "job": str(job_path)},
            }
            with get_client(sync_client=True) as client:
                # Made here, not by calling the flow: so that its id is known before anybody can cancel it.
                flow_run = client.create_flow_run(batch_inference, parameters=parameters, state=Pending(), tags=labels)
            with interruptible(flow_run.id), progress_bars(job.name):
                receipt: dict[str, Any] = run_flow(batch_inference, flow_run=flow_run)  # type: ignore[assignment]
                return receipt
    except KeyboardInterrupt:
        raise RunCancelled() from None  # before the run was there
    except Exception as error:
        raise explain(error, "plan") from None
