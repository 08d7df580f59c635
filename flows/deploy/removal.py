"""`overnight remove`: take a job off the Prefect server, and name what stays there, beside the data and on disk."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId, FlowRunFilter, FlowRunFilterState
from prefect.client.schemas.filters import FlowRunFilterStateType as OfType
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.schemas.automations import Automation

from overnight.flows.deploy.apply import remove_deployments
from overnight.flows.deploy.deployments import deployed_flows
from overnight.flows.deploy.server_state import OURS, read_deployments, times_of
from overnight.flows.job.model import Job
from overnight.tasks.config.masking import filled_in, masked

UNDER_WAY = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
AN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Item:
    """An object of the server, or a place of files. `remark` has the reason, or how a user deletes it."""

    kind: str
    name: str
    remark: str = ""


def remove_job(job: Job, job_path: Path, dry_run: bool = True) -> dict[str, Any]:
    """Remove a job's deployments, with their schedules, and its automations from the configured Prefect server.

    Return a report as JSON values: what is removed, or in a dry run would be, and what stays.
    """
    with get_client(sync_client=True) as client:
        names = {f"{flow}/{job.name}" for flow in deployed_flows()}
        on_server = read_deployments(client, deployed_flows())
        deployments = {name: on_server[name] for name in names & on_server.keys()}
        ids = {deployment.id for deployment in deployments.values()}
        own, stays = _automations(client, ids)
        items = [*_described(deployments), *(Item("automation", automation.name) for automation in own)]
        stays += _runs_under_way(client, ids)
        if not dry_run:
            for automation in own:
                client.delete_automation(automation.id)
            remove_deployments(client, set(deployments))
    stays += [*_shared(deployments), *files_of(job, job_path)]
    return {
        "job": job.name,
        "dry_run": dry_run,
        "removable" if dry_run else "removed": list(map(asdict, items)),
        "stays": list(map(asdict, stays)),
    }


def _described(deployments: Mapping[str, DeploymentResponse]) -> Iterator[Item]:
    for name, deployment in sorted(deployments.items()):
        yield Item("deployment", name)
        for schedule in deployment.schedules:
            yield Item("schedule", name, times_of(schedule))


def _automations(client: SyncPrefectClient, ids: set[UUID]) -> tuple[list[Automation], list[Item]]:
    """Return the automations that name these deployments alone, and the automations that stay."""
    own: list[Automation] = []
    stays: list[Item] = []
    for automation in client.read_automations():
        content = automation.model_dump_json(exclude={"id", "owner_resource"})
        references = set(map(UUID, AN_ID.findall(content)))
        if references & ids and references <= ids:
            own.append(automation)
        elif references & ids:
            remark = "it also names other objects of the server: change it in the UI"
            stays.append(Item("automation", automation.name, remark))
        elif automation.name.startswith(f"{OURS}-"):
            stays.append(Item("automation", automation.name, "it serves all jobs"))
    return own, stays


def _runs_under_way(client: SyncPrefectClient, ids: set[UUID]) -> Iterator[Item]:
    """Yield the runs of these deployments that have begun. The server deletes waiting runs with the deployment."""
    if not ids:
        return
    of_job = DeploymentFilter(id=DeploymentFilterId(any_=list(ids)))
    at_work = FlowRunFilter(state=FlowRunFilterState(type=OfType(any_=UNDER_WAY)))
    for run in client.read_flow_runs(deployment_filter=of_job, flow_run_filter=at_work):
        yield Item("run", str(run.name), "it is under way, and goes on: cancel it in the UI if it must end")


def _shared(deployments: Mapping[str, DeploymentResponse]) -> Iterator[Item]:
    pools = {deployment.work_pool_name for deployment in deployments.values() if deployment.work_pool_name}
    for pool in sorted(pools):
        yield Item("work pool", pool, "it serves all jobs")


def files_of(job: Job, job_path: Path) -> Iterator[Item]:
    """Yield the places of the job's files, with the command that deletes each."""
    directory, table = job.sink.place or "", getattr(job.sink, "table", "")  # of a database or a catalogue
    command = "drop the table" if table else _deletion(directory)
    name = masked(f"{filled_in(directory)} {table}".strip())
    yield Item("published rows", name, f"to delete them, unless other jobs publish there: {command}")
    state = str(job.state_location)
    remark = "receipts, reports, quarantine and staged work; to delete them, unless other jobs use it"
    yield Item("state", filled_in(state), f"{remark}: {_deletion(state)}")
    yield Item("job file", str(job_path))
    yield Item("past runs", f"tag job:{job.name}", "the server keeps them with their artifacts: delete them in the UI")


def _deletion(directory: str) -> str:
    path = filled_in(directory).removeprefix("file://")
    scheme, separator, _ = path.partition("://")
    commands = {"s3": "aws s3 rm --recursive", "gs": "gcloud storage rm --recursive"}
    if not separator:
        return f"rm -r {shlex.quote(path)}"
    return f"{commands[scheme]} {shlex.quote(path)}" if scheme in commands else "use a tool of its store"
