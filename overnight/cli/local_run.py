"""Run a flow in this process, with a local Prefect server, Ray, and progress in the terminal."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.states import Pending

from overnight.cli.progress_bars import progress
from overnight.flows.backfill import backfill, backfill_id
from overnight.flows.batch_inference import batch_inference
from overnight.flows.job.model import Job
from overnight.flows.runs.attempt import bury_publisher, fresh_receipt, is_publisher_dead
from overnight.flows.runs.cancellation import RunCancelled, interruptible
from overnight.flows.runs.local_server import prefect_server, ui_address
from overnight.flows.runs.prefect_internals import run_flow
from overnight.flows.runs.run import describe_run
from overnight.flows.similarity_search import similarity_search
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import STREAM_STAGES, explain


def run_locally(
    job_path: Path,
    job: Job,
    partition: str,
    force: bool,
    reason: str,
    limit_rows: int,
    settings: Sequence[str],
    verbose: bool = False,
) -> dict[str, Any]:
    """Run one partition now, and return its receipt. Raise `OvernightError`, also if the run is cancelled."""
    try:
        described = describe_run(job, partition, reason, limit_rows)
        if not force and (published := fresh_receipt(job, described)):
            if is_publisher_dead(described, published):
                with prefect_server():
                    bury_publisher(described)
            return published  # without a server or Ray
    except KeyboardInterrupt:
        raise RunCancelled() from None
    except Exception as error:
        raise explain(error, "plan") from None
    parameters = {
        **{"partition": partition, "force": force, "reason": reason, "limit_rows": limit_rows},
        **{"settings": list(settings), "job": str(job_path)},
    }
    receipt: dict[str, Any] = _run(batch_inference, parameters, job, [f"partition:{partition}"], verbose)
    return receipt


def backfill_locally(job_path: Path, job: Job, verbose: bool = False, **options: Any) -> None:
    """Run a backfill now; `options` are its flow's parameters.

    Raise `BackfillFailed` if partitions failed, and `OvernightError` if it could not begin or was cancelled.
    """
    _run(backfill, {**options, "job": str(job_path)}, job, [], verbose)


def search_locally(job_path: Path, **question: Any) -> dict[str, Any]:
    """Search without Ray, and return the result. `question` holds the flow's parameters. Raise `OvernightError`."""
    try:
        with prefect_server() as url:
            click.echo(f"Prefect UI: {ui_address(url)}", err=True)
            return dict(similarity_search(str(job_path), **question))
    except KeyboardInterrupt:
        raise RunCancelled() from None
    except Exception as error:
        raise explain(error, "plan") from None


def _run(
    flow: Flow[..., Any], parameters: dict[str, Any], job: Job, labels: Sequence[str], verbose: bool = False
) -> Any:
    """Run the flow in this process, and return its result."""
    try:
        labels = [f"job:{job.name}", *labels]
        with prefect_server() as url:
            click.echo(f"Prefect UI: {ui_address(url)}", err=True)
            with get_client(sync_client=True) as client:
                # Calling the flow would make the run too; made here, its id is known before a user can cancel it.
                flow_run = client.create_flow_run(flow, parameters=parameters, state=Pending(), tags=labels)
            if flow is backfill:
                click.echo(f"backfill {parameters['resume'] or backfill_id(flow_run.id)}", err=True)
            stages = ("backfill", *STREAM_STAGES) if flow is backfill else STREAM_STAGES
            if flow is not backfill:
                address = masked(os.environ.get("RAY_ADDRESS", ""))
                click.echo(f"Connecting to Ray at {address}" if address else "Starting Ray, about 10 s", err=True)
            with interruptible(flow_run.id), progress(job.name, flow_run.id, stages, verbose):
                return run_flow(flow, flow_run=flow_run)
    except KeyboardInterrupt:
        raise RunCancelled() from None  # before the flow run existed
    except Exception as error:
        raise explain(error, "plan") from None
