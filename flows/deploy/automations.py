"""Automations: reactions of the Prefect server to events. Each is a file in `deployments/automations`.

A file has the format of `prefect automation create --from-file`. The `name` in it identifies the automation on the
server. No automation is deleted. An automation that a user made stays, and one that a user paused stays paused.
"""

from pathlib import Path

import yaml
from prefect.client.orchestration import get_client
from prefect.events.schemas.automations import AutomationCore
from pydantic import ValidationError

from overnight.tasks.errors import JobError

FOLDER = Path(__file__).parent / "shipped/automations"  # in a checkout a link to deployments/automations
HEARTBEAT_SECONDS = "30"  # the minimum of Prefect 3.9; deployments/prefect.yaml sets the same for workers


def apply_automations(folder: Path = FOLDER) -> dict[str, str]:
    """Make the automations of a folder on the server. Return `created`, `changed` or `unchanged` for each, by name."""
    changes = {}
    with get_client(sync_client=True) as client:
        for automation in read_automations(folder):
            existing = next(iter(client.read_automations_by_name(automation.name)), None)
            if not existing:
                client.create_automation(automation)
                changes[automation.name] = "created"
                continue
            automation.enabled = existing.enabled
            if _content(existing) == _content(automation):
                changes[automation.name] = "unchanged"
            else:
                client.update_automation(existing.id, automation)
                changes[automation.name] = "changed"
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
