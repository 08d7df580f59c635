"""`overnight deploy` and `overnight serve`: put jobs on a Prefect server.

`deploy` applies deployments/prefect.yaml and the automations to a server, and lists the changes; a second call changes
nothing. `deploy JOB.yaml` needs no prefect.yaml, because it uses the defaults of the package. `serve` runs jobs from
this process instead, for one machine.

Runs of deployments send heartbeats, and the server's automations restart runs whose process died.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.flows import serve as serve_deployments
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.annotations import freeze

from overnight.flows.batch_inference import batch_inference
from overnight.flows.deploy.automations import FOLDER, HEARTBEAT_SECONDS, apply_automations, read_automations
from overnight.flows.deploy.deployments import DEPLOYED, UndeployedJob, flow_at
from overnight.flows.deploy.frozen_job import freeze_job
from overnight.flows.deploy.prefect_yaml import (
    PREFECT_FILE,
    SLUG,
    PrefectFile,
    deployable_jobs,
    obsolete_deployments,
)
from overnight.flows.deploy.server_state import Change, ServerObject, changes, read_deployments, read_things
from overnight.flows.deploy.work_pools import apply_limits, apply_work_pool
from overnight.flows.job.model import Job
from overnight.tasks.errors import OvernightError

AT_ONCE = 2  # runs of a job on one machine: a run of a backfill and the daily run


def deploy(
    prefect_file: Path = PREFECT_FILE, automations: Path = FOLDER, job_paths: Sequence[Path] = ()
) -> list[Change]:
    """Apply a prefect.yaml and a folder of automations to the configured server. Return the change of each object.

    With `job_paths`, deploy these jobs with the prefect.yaml of the package instead of `prefect_file`. Pools, queues
    and limits that the server already has then keep their sizes.

    Remove deployments that a job no longer has. Raise `JobError` for a wrong file before the server changes, and
    `OvernightError` if the server refuses a change.
    """
    file = PrefectFile(prefect_file, job_paths)
    named = expected_server_state(file, automations)
    with get_client(sync_client=True) as client:
        before, deployed = read_things(client, file), read_deployments(client, file.flow_names)
        for pool in file.work_pools:
            apply_work_pool(client, pool, keep=file.is_default)
        kept = {name for kind, name in before if file.is_default and kind == "concurrency limit"}
        apply_limits(client, [limit for limit in file.concurrency_limits if limit.name not in kept])
        apply_automations(automations)
        with _written(file) if file.is_default else contextlib.nullcontext(file.path) as path:
            _prefect_deploy(path)
        for name, found in read_deployments(client, file.flow_names).items():
            if name not in file.deployments:
                continue
            freeze_job(client, found)
            if name in deployed:
                _mend(client, deployed[name], found, file.deployments[name])
        remove_deployments(client, file.obsolete)
        return changes(before, read_things(client, file), named)


def remove_deployments(client: SyncPrefectClient, names: Collection[str]) -> list[str]:
    """Remove the deployments with these names from the server, and return the names that it had.

    Their schedules would start runs that can only fail.
    """
    deployments = read_deployments(client, {name.partition("/")[0] for name in names})
    found = sorted(deployments.keys() & set(names))
    for name in found:
        client.delete_deployment(deployments[name].id)
    return found


def expected_server_state(file: PrefectFile, automations: Path = FOLDER) -> list[ServerObject]:
    """Return the kind and the name of each server object that the prefect.yaml and the folder of automations define."""
    return [
        *(("work pool", pool.name) for pool in file.work_pools),
        *(("work queue", f"{pool.name}/{queue.name}") for pool in file.work_pools for queue in pool.work_queues),
        *(("concurrency limit", limit.name) for limit in file.concurrency_limits),
        *(("deployment", name) for name in file.deployments),
        *(("automation", automation.name) for automation in read_automations(automations)),
    ]


@contextlib.contextmanager
def _written(file: PrefectFile) -> Iterator[Path]:
    """Yield the path of a prefect.yaml with these deployments.

    Their runs use the folder in which `prefect deploy` is called.
    """
    with tempfile.TemporaryDirectory(prefix="overnight-") as folder:
        path = Path(folder) / "prefect.yaml"
        path.write_text(yaml.safe_dump(file.described))
        yield path


def _prefect_deploy(prefect_file: Path) -> None:
    """Call `prefect deploy` without output. Raise `OvernightError` with its output if it fails."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(prefect_file)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise OvernightError(f"`prefect deploy` failed with exit status {done.returncode}. Its output:\n{done.stdout}")


def _mend(
    client: SyncPrefectClient, before: DeploymentResponse, after: DeploymentResponse, entry: Mapping[str, Any]
) -> None:
    """Correct the effects of `prefect deploy` 3.8 on paused deployments and on schedules.

    `prefect deploy` resumes a deployment that a user paused, and keeps a schedule that the job no longer has. If a user
    made a schedule without a slug, it removes that schedule, and resumes the paused ones.
    """
    if before.paused and not after.paused and "paused" not in entry:
        client.pause_deployment(after.id)
    named = {schedule.get("slug") for schedule in entry["schedules"]}
    paused = {schedule.slug for schedule in before.schedules if not schedule.active}
    for schedule in after.schedules:
        if schedule.slug == SLUG and SLUG not in named:
            client.delete_deployment_schedule(after.id, schedule.id)
        elif schedule.slug in paused and schedule.active:
            client.update_deployment_schedule(after.id, schedule.id, active=False)
    for schedule in before.schedules:
        if schedule.slug is None and not _is_among(schedule, after.schedules):
            client.create_deployment_schedules(after.id, [(schedule.schedule, schedule.active)])


def _is_among(wanted: DeploymentSchedule, found: Sequence[DeploymentSchedule]) -> bool:
    return any(schedule.slug is None and schedule.schedule == wanted.schedule for schedule in found)


def serve(job_paths: Sequence[Path]) -> None:
    """Run the jobs on their schedules, and when a user starts a run in the UI, until this process is interrupted.

    Raise `JobError` for a job file that is wrong or has relative paths.
    """
    jobs = deployable_jobs(job_paths)
    with get_client(sync_client=True) as client:
        for name in remove_deployments(client, set[str]().union(*map(obsolete_deployments, jobs.values()))):
            click.echo(f"deployment {name}: removed", err=True)
    for name, done in apply_automations().items():
        click.echo(f"automation {name}: {done}", err=True)
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", HEARTBEAT_SECONDS)
    deployments = [deployment for path, job in jobs.items() for deployment in _deployments(job, path)]
    # Schedules stay active after the end: runs that fall due until the next call are late, and `catch_up` decides.
    serve_deployments(*deployments, pause_on_shutdown=False)


def _deployments(job: Job, path: Path) -> list[RunnerDeployment]:
    deployments: list[RunnerDeployment] = []
    for entrypoint, when in DEPLOYED.items():
        try:
            schedule = when(job)
        except UndeployedJob:
            continue
        flow = flow_at(entrypoint)
        options: dict[str, Any] = {"schedule": schedule} if schedule else {}
        if flow is batch_inference:
            options["concurrency_limit"] = ConcurrencyLimitConfig(limit=AT_ONCE)
        deployment: RunnerDeployment = flow.to_deployment(  # type: ignore[assignment]
            name=job.name,
            description=f"{flow.description}\n\nJob file: {path}",
            parameters={"job": freeze(str(path.resolve()))},
            tags=[f"job:{job.name}"],
            entrypoint_type=EntrypointType.MODULE_PATH,  # workers import the flow by its pickled name
            **options,
        )
        deployments.append(deployment)
    return deployments
