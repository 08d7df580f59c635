"""Deployments: each job file becomes `batch-inference/<job>`, with its schedule and a form for runs by hand; their runs
send heartbeats, and the server's automations start those again whose process died.

`serve` runs them from this process, for one machine. `deploy` hands `deployments/prefect.yaml` to a server whose worker
runs them.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists
from prefect.flows import serve as serve_deployments
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.annotations import freeze

from flows.automations import apply_automations
from flows.batch_inference import batch_inference
from flows.job import Job, load_job, read_job, relative_paths
from tasks.errors import JobError

HEARTBEAT_SECONDS = "30"  # the least that Prefect 3.8 takes; deployments/prefect.yaml says the same to workers
PREFECT_FILE = Path("deployments/prefect.yaml")


def deployable(job_path: Path) -> Job:
    """The job, if it means the same wherever it runs. Raises `JobError` for relative paths."""
    relative = relative_paths(read_job(job_path))
    if relative:
        raise JobError(
            f"{job_path}: expected full paths or URIs in a deployment, found {', '.join(relative)}: a relative path is "
            "another place on every machine. Write it in full, or begin it with ${ENV_VAR}."
        )
    return load_job(job_path)


def serve(job_paths: Sequence[Path]) -> None:
    """Runs the jobs' schedules, and what is asked for in the UI, until interrupted. Raises `JobError`."""
    jobs = {path: deployable(path) for path in job_paths}
    _apply_automations()
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", HEARTBEAT_SECONDS)
    serve_deployments(*(_deployment(job, path) for path, job in jobs.items()))


def _deployment(job: Job, path: Path) -> RunnerDeployment:
    schedule = job.schedule and CronSchedule(cron=job.schedule.cron, timezone=job.schedule.timezone)
    options: dict[str, Any] = {"schedule": schedule} if schedule else {}
    deployment: RunnerDeployment = batch_inference.to_deployment(  # type: ignore[assignment]
        name=job.name,
        description=f"Runs one partition of {path}. Leave partition empty for the day that is due.",
        parameters={"job": freeze(str(path.resolve()))},
        tags=[f"job:{job.name}"],
        entrypoint_type=EntrypointType.MODULE_PATH,  # workers must find the flow by the name it is pickled with
        **options,
    )
    return deployment


def deploy(prefect_file: Path = PREFECT_FILE) -> int:
    """Applies a prefect.yaml and the automations to the configured server; the exit status of `prefect deploy`.

    Raises `JobError` for a missing file and for jobs that a deployment refuses.
    """
    if not prefect_file.is_file():
        raise JobError(f"expected {prefect_file}, found nothing. Run in the project's directory.")
    described = yaml.safe_load(prefect_file.read_text())
    for deployment in described["deployments"]:
        job = deployable(Path(deployment["parameters"]["job"]))
        found = [(schedule["cron"], schedule.get("timezone", "UTC")) for schedule in deployment["schedules"]]
        expected = [(job.schedule.cron, job.schedule.timezone)] if job.schedule else []
        if found != expected:
            raise JobError(
                f"{prefect_file}: {deployment['name']} is scheduled {found or 'never'}, its job file says "
                f"{expected or 'never'}. Make them agree."
            )
    with get_client(sync_client=True) as client:
        for pool in sorted({deployment["work_pool"]["name"] for deployment in described["deployments"]}):
            try:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
            except ObjectAlreadyExists:
                continue
    _apply_automations()
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(prefect_file)]
    return subprocess.run(command, check=False).returncode


def _apply_automations() -> None:
    for name, done in apply_automations().items():
        click.echo(f"automation {name}: {done}", err=True)
