"""Automations: reactions of the Prefect server to events. Each is a file in `deployments/automations`.

A file has the format of `prefect automation create --from-file`. The `name` in it identifies the automation on the
server. A job with `run_after` has one for each job that it follows. An automation that a user made stays, and one that
a user paused stays paused.
"""

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.actions import RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from pydantic import ValidationError

from overnight.flows.deploy.server_state import OURS
from overnight.flows.job.model import Job
from overnight.flows.schedule.run_after import PUBLISHED, resource_of, started_partition
from overnight.tasks.errors import JobError

FOLDER = Path(__file__).parent / "shipped/automations"  # in a checkout a link to deployments/automations
HEARTBEAT_SECONDS = "30"  # the minimum of Prefect 3.9; deployments/prefect.yaml sets the same for workers


def apply_automations(folder: Path = FOLDER) -> dict[str, str]:
    """Make the automations of a folder on the server. Return `created`, `changed` or `unchanged` for each, by name."""
    with get_client(sync_client=True) as client:
        return {automation.name: _apply(client, automation) for automation in read_automations(folder)}


def _apply(client: SyncPrefectClient, automation: AutomationCore) -> str:
    """Make an automation on the server. Return `created`, `changed` or `unchanged`."""
    existing = next(iter(client.read_automations_by_name(automation.name)), None)
    if not existing:
        client.create_automation(automation)
        return "created"
    automation.enabled = existing.enabled
    if _content(existing) == _content(automation):
        return "unchanged"
    client.update_automation(existing.id, automation)
    return "changed"


def following(job: Job) -> list[str]:
    """Return the names of the automations that start a job after each of the jobs that it follows."""
    return [f"{OURS}-{job.name}-after-{after.upstream.name}" for after in job.run_after]


def apply_following(client: SyncPrefectClient, job: Job, deployment: UUID) -> dict[str, str]:
    """Make the automations of a job that follows others, and remove those of its deployment that it no longer has.

    Return the change of each, by name.
    """
    changes = {}
    for name, after in zip(following(job), job.run_after, strict=True):
        upstream = after.upstream.name
        templates = {
            "partition": started_partition(job),
            "reason": f"after {upstream}/{{{{ event.payload.partition }}}}",
        }
        parameters = {name: {"__prefect_kind": "jinja", "template": text} for name, text in templates.items()}
        automation = AutomationCore(
            name=name,
            description=f"Run {job.name} each time {upstream} is published.",
            trigger=EventTrigger(
                posture=Posture.Reactive,
                expect={PUBLISHED},
                match={"prefect.resource.id": resource_of(upstream)},
                threshold=1,
                within=timedelta(0),
            ),
            actions=[
                RunDeployment(source="selected", deployment_id=deployment, parameters=parameters, job_variables=None)
            ],
        )
        changes[name] = _apply(client, automation)
    for automation in client.read_automations():
        is_mine = automation.name.startswith(f"{OURS}-{job.name}-after-") and automation.name not in changes
        if is_mine and any(getattr(action, "deployment_id", None) == deployment for action in automation.actions):
            client.delete_automation(automation.id)
            changes[automation.name] = "removed"
    return changes


def read_automations(folder: Path = FOLDER) -> list[AutomationCore]:
    if not folder.is_dir():
        raise JobError(f"expected automation files in {folder}, found no such folder. Install Overnight again.")
    return list(map(_read, sorted(folder.glob("*.yaml"))))


def _read(path: Path) -> AutomationCore:
    try:
        return AutomationCore.model_validate(yaml.safe_load(path.read_text()))
    except (ValidationError, yaml.YAMLError) as error:
        raise JobError(f"{path}: expected an automation in Prefect's format: {error}") from None


def _content(automation: AutomationCore) -> dict[str, object]:
    """Return the automation's fields that a YAML file can have, without the ids that the server adds."""
    return AutomationCore.model_validate(automation.model_dump(mode="json")).model_dump(mode="json")
