"""`overnight deploy` and `overnight serve`: jobs on a Prefect server.

`deploy` makes a server what deployments/prefect.yaml and the automations say, and tells what that changed; a second
call changes nothing. `deploy JOB.yaml` needs no prefect.yaml: it takes the defaults that ship. `serve` runs jobs from
this process instead, for one machine.

Deployments' runs send heartbeats, and the server's automations start those again whose process died.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
from overnight.flows.deploy.automations import FOLDER, apply_automations, read_automations
from overnight.flows.deploy.deployments import DEPLOYED, UndeployedJob, flow_at
from overnight.flows.deploy.prefect_yaml import PREFECT_FILE, SLUG, PrefectFile, deployable
from overnight.flows.deploy.server_state import Change, ServerObject, changes, read_deployments, read_things
from overnight.flows.deploy.work_pools import apply_limits, apply_work_pool
from overnight.flows.job.model import Job
from overnight.tasks.errors import OvernightError

HEARTBEAT_SECONDS = "30"  # the least that Prefect 3.9 takes; deployments/prefect.yaml says the same to workers
AT_ONCE = 2  # runs of a job on one machine: a backfill's, and the daily one beside it


def deploy(
    prefect_file: Path = PREFECT_FILE, automations: Path = FOLDER, job_paths: Sequence[Path] = ()
) -> list[Change]:
    """Applies a prefect.yaml and the automations to the configured server; what became of each thing.

    With `job_paths` it deploys these jobs with the defaults that ship. Sizes of the pool, its queues and limits that
    the server has already stay as they are, because no file of yours holds them.

    Raises `JobError` for what is wrong in a file, before anything is applied, and `OvernightError` where the server
    refuses.
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
            if name in deployed and name in file.deployments:
                _mend(client, deployed[name], found, file.deployments[name])
        return changes(before, read_things(client, file), named)


def expected_server_state(file: PrefectFile, automations: Path = FOLDER) -> list[ServerObject]:
    """All that the files name."""
    return [
        *(("work pool", pool.name) for pool in file.work_pools),
        *(("work queue", f"{pool.name}/{queue.name}") for pool in file.work_pools for queue in pool.work_queues),
        *(("concurrency limit", limit.name) for limit in file.concurrency_limits),
        *(("deployment", name) for name in file.deployments),
        *(("automation", automation.name) for automation in read_automations(automations)),
    ]


@contextlib.contextmanager
def _written(file: PrefectFile) -> Iterator[Path]:
    """Yield a prefect.yaml with these deployments. Their runs work in the folder where `prefect deploy` is called."""
    with tempfile.TemporaryDirectory(prefix="overnight-") as folder:
        path = Path(folder) / "prefect.yaml"
        path.write_text(yaml.safe_dump(file.described))
        yield path


def _prefect_deploy(prefect_file: Path) -> None:
    """Says nothing, unless it fails: then it raises `OvernightError` with all that was said."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(prefect_file)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise OvernightError(f"`prefect deploy` failed with {done.returncode}. It said:\n{done.stdout}")


def _mend(
    client: SyncPrefectClient, before: DeploymentResponse, after: DeploymentResponse, entry: Mapping[str, Any]
) -> None:
    """What `prefect deploy` of 3.8 gets wrong: it wakes a deployment that a person paused and keeps the schedule that a
    job no longer has; where a person made a schedule without a slug it drops that, and wakes the paused ones.
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
    """Runs the jobs' schedules, and what is asked for in the UI, until interrupted. Raises `JobError`."""
    jobs = {path: deployable(path) for path in job_paths}
    for name, done in apply_automations().items():
        click.echo(f"automation {name}: {done}", err=True)
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", HEARTBEAT_SECONDS)
    deployments = [deployment for path, job in jobs.items() for deployment in _deployments(job, path)]
    # Not paused in the end: what falls due until the next call is late, and caught up as the job says.
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
            description=f"{flow.description}\n\nOf the job file {path}.",
            parameters={"job": freeze(str(path.resolve()))},
            tags=[f"job:{job.name}"],
            entrypoint_type=EntrypointType.MODULE_PATH,  # workers must find the flow by the name it is pickled with
            **options,
        )
        deployments.append(deployment)
    return deployments
