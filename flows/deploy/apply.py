"""`overnight deploy` and `overnight serve`: put jobs on a Prefect server.

`deploy` applies deployments/prefect.yaml, or the defaults of the package, and the automations to a server, and lists
the changes; a second call changes nothing. `serve` runs jobs from this process instead, for one machine.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import click
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.flows import serve as serve_deployments
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.annotations import freeze

from overnight.flows.batch_inference import batch_inference
from overnight.flows.deploy.automations import (
    FOLDER,
    HEARTBEAT_SECONDS,
    apply_automations,
    apply_following,
    following,
    read_automations,
)
from overnight.flows.deploy.deployments import describe, flows_of
from overnight.flows.deploy.prefect_yaml import (
    PREFECT_FILE,
    SLUG,
    PrefectFile,
    WorkPool,
    WorkQueue,
    deployable_jobs,
    obsolete_deployments,
)
from overnight.flows.deploy.server_state import Change, ServerObject, changes, read_deployments, read_things
from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.job.parameters import partition_choices
from overnight.flows.runs.prefect_internals import change_form
from overnight.tasks.errors import JobError, OvernightError

AT_ONCE = 2  # runs of a job on one machine: a run of a backfill and the daily run


def deploy(
    prefect_file: Path = PREFECT_FILE, automations: Path = FOLDER, job_paths: Sequence[Path] = ()
) -> list[Change]:
    """Apply a prefect.yaml and a folder of automations to the configured server. Return the change of each object.

    With `job_paths`, deploy these jobs with the file of the package: what the server already has keeps its sizes.
    """
    file = PrefectFile(prefect_file, job_paths)
    objects = expected_server_state(file, automations)
    with get_client(sync_client=True) as client:
        state, before = read_things(client, file), read_deployments(client, file.flow_names)
        for pool in file.work_pools:
            _apply_work_pool(client, pool, keep=file.is_default)
        for limit in file.concurrency_limits:
            if not (file.is_default and ("concurrency limit", limit.name) in state):
                client.upsert_global_concurrency_limit_by_name(limit.name, limit.limit)
        apply_automations(automations)
        with _written(file) if file.is_default else contextlib.nullcontext(file.path) as path:
            _prefect_deploy(path)
        for name, deployment in read_deployments(client, file.flow_names).items():
            if name in file.deployments:
                _freeze_job(client, deployment)
                if name in before:
                    _mend(client, before[name], deployment, file.deployments[name])
        remove_deployments(client, file.obsolete)
        deployments = read_deployments(client, {batch_inference.name})
        for name, job in file.jobs.items():
            apply_following(client, job, deployments[f"{batch_inference.name}/{name}"].id)
        return changes(state, read_things(client, file), objects)


def _apply_work_pool(client: SyncPrefectClient, pool: WorkPool, keep: bool) -> None:
    """Create or update a pool and its queues from `pool`. With `keep`, only create what the server lacks."""
    settings: dict[str, Any] = {"concurrency_limit": pool.concurrency_limit}
    if pool.base_job_template is not None:
        settings["base_job_template"] = pool.base_job_template
    try:
        existing = client.read_work_pool(pool.name)
    except ObjectNotFound:
        existing = client.create_work_pool(WorkPoolCreate(name=pool.name, type=pool.type, **settings))
        keep = False  # the server creates a queue with other sizes
    if existing.type != pool.type:
        raise JobError(
            f"work pool {pool.name}: expected type {pool.type}, found {existing.type} on the server. Prefect cannot "
            "change a pool's type. Delete that pool, or name another in deployments/prefect.yaml."
        )
    if not keep and existing.model_dump(include=set(settings)) != settings:
        client.update_work_pool(pool.name, WorkPoolUpdate(**settings))
    # In the order of priority: the server moves a queue back if another queue takes its priority.
    for queue in sorted(pool.work_queues, key=lambda queue: queue.priority):
        _apply_queue(client, pool.name, queue, keep)


def _apply_queue(client: SyncPrefectClient, pool: str, queue: WorkQueue, keep: bool) -> None:
    settings: dict[str, Any] = {"priority": queue.priority, "concurrency_limit": queue.concurrency_limit}
    queues = {existing.name: existing for existing in client.read_work_queues(work_pool_name=pool)}
    existing = queues.get(queue.name)
    if existing is None:
        client.create_work_queue(queue.name, work_pool_name=pool, **settings)
    elif not keep and existing.model_dump(include=set(settings)) != settings:
        client.update_work_queue(existing.id, **settings)


def remove_deployments(client: SyncPrefectClient, names: Collection[str]) -> list[str]:
    """Remove the deployments with these names from the server, and return the names that it had.

    Their schedules would start runs that can only fail.
    """
    deployments = read_deployments(client, {name.partition("/")[0] for name in names})
    obsolete = sorted(deployments.keys() & set(names))
    for name in obsolete:
        client.delete_deployment(deployments[name].id)
    return obsolete


def expected_server_state(file: PrefectFile, automations: Path = FOLDER) -> list[ServerObject]:
    """Return the kind and the name of each server object that the prefect.yaml and the folder of automations define."""
    objects = [("work pool", pool.name) for pool in file.work_pools]
    for pool in file.work_pools:
        objects += [("work queue", f"{pool.name}/{queue.name}") for queue in pool.work_queues]
    objects += [("concurrency limit", limit.name) for limit in file.concurrency_limits]
    objects += [("deployment", name) for name in file.deployments]
    names = [automation.name for automation in read_automations(automations)]
    for job in file.jobs.values():
        names += following(job)
    return [*objects, *(("automation", name) for name in names)]


@contextlib.contextmanager
def _written(file: PrefectFile) -> Iterator[Path]:
    """Yield the path of a prefect.yaml with these deployments. Their runs use the folder of this command."""
    with tempfile.TemporaryDirectory(prefix="overnight-") as folder:
        path = Path(folder) / "prefect.yaml"
        path.write_text(yaml.safe_dump(file.described))
        yield path


def _prefect_deploy(prefect_file: Path) -> None:
    """Call `prefect deploy` without output. Raise `OvernightError` with its output if it fails."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(prefect_file)]
    process = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if process.returncode:
        raise OvernightError(
            f"`prefect deploy` failed with exit status {process.returncode}. Its output:\n{process.stdout}"
        )


def _freeze_job(client: SyncPrefectClient, deployment: DeploymentResponse) -> None:
    """Let the form and the server accept only the job file that the deployment has now, and the job's partitions.

    Prefect has `freeze` for deployments from Python, but not for deployments from a prefect.yaml.
    """
    schema = deployment.parameter_openapi_schema or {}
    own, parameter = deployment.parameters.get("job"), schema.get("properties", {}).get("job")
    if own is None or parameter is None:
        return
    parameter = {**parameter, "enum": [own], "readOnly": True}
    properties = _with_choices({**schema["properties"], "job": parameter}, load_job(own))
    if properties == schema["properties"]:
        return
    schema = {**schema, "properties": properties}
    client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=schema))


def _with_choices(properties: dict[str, Any], job: Job) -> dict[str, Any]:
    """Return the parameters of a form. Of a job with `partitions`, the parameter `partition` has its choices."""
    if job.partitions is None or "anyOf" not in properties.get("partition", {}):
        return properties
    return {**properties, "partition": {**properties["partition"], "anyOf": partition_choices(job.partitions)}}


def _mend(
    client: SyncPrefectClient, before: DeploymentResponse, after: DeploymentResponse, entry: Mapping[str, Any]
) -> None:
    """Correct the effects of `prefect deploy` on paused deployments and on schedules.

    It resumes what a user paused, keeps schedules that the job no longer has, and removes those without a slug.
    """
    if before.paused and not after.paused and "paused" not in entry:
        client.pause_deployment(after.id)
    slugs = {schedule.get("slug") for schedule in entry["schedules"]}
    paused_slugs = {schedule.slug for schedule in before.schedules if not schedule.active}
    for schedule in after.schedules:
        if schedule.slug == SLUG and SLUG not in slugs:
            client.delete_deployment_schedule(after.id, schedule.id)
        elif schedule.slug in paused_slugs and schedule.active:
            client.update_deployment_schedule(after.id, schedule.id, active=False)
    without_slug = [schedule.schedule for schedule in after.schedules if schedule.slug is None]
    for schedule in before.schedules:
        if schedule.slug is None and schedule.schedule not in without_slug:
            client.create_deployment_schedules(after.id, [(schedule.schedule, schedule.active)])


def serve(job_paths: Sequence[Path]) -> None:
    """Run the jobs on their schedules, and when a user starts a run in the UI, until this process is interrupted."""
    jobs = deployable_jobs(job_paths)
    with get_client(sync_client=True) as client:
        for name in remove_deployments(client, set[str]().union(*map(obsolete_deployments, jobs.values()))):
            click.echo(f"deployment {name}: removed", err=True)
    for name, change in apply_automations().items():
        click.echo(f"automation {name}: {change}", err=True)
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", HEARTBEAT_SECONDS)
    deployments: list[RunnerDeployment] = []
    for path, job in jobs.items():
        own = _deployments(job, path)
        with get_client(sync_client=True) as client:
            deployment = cast("UUID", own[0].apply())  # a coroutine only inside of an event loop
            for name, change in apply_following(client, job, deployment).items():
                click.echo(f"automation {name}: {change}", err=True)
        deployments += own
    # Schedules stay active after the end: runs that fall due until the next call are late, and `catch_up` decides.
    serve_deployments(*deployments, pause_on_shutdown=False)


def _deployments(job: Job, path: Path) -> list[RunnerDeployment]:
    deployments: list[RunnerDeployment] = []
    for flow, schedule in flows_of(job):
        options: dict[str, Any] = {"schedule": schedule} if schedule else {}
        if flow is batch_inference:
            options["concurrency_limit"] = ConcurrencyLimitConfig(limit=AT_ONCE)
        deployment: RunnerDeployment = flow.to_deployment(  # type: ignore[assignment]
            name=job.name,
            description=describe(flow, job, path),
            parameters={"job": freeze(str(path.resolve()))},
            tags=[f"job:{job.name}"],
            entrypoint_type=EntrypointType.MODULE_PATH,  # workers import the flow by its pickled name
            **options,
        )
        change_form(deployment, lambda properties: _with_choices(properties, job))
        deployments.append(deployment)
    return deployments
