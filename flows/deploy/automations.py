"""Automations: what the Prefect server does by itself, one file each in `deployments/automations`.

A file is what `prefect automation create --from-file` takes; its `name` is its identity. Nothing is deleted here: an
automation that a person made, or paused, is that person's.
"""

from pathlib import Path

import yaml
from prefect.client.orchestration import get_client
from prefect.events.schemas.automations import AutomationCore
from pydantic import ValidationError

from overnight.tasks.errors import JobError

FOLDER = Path(__file__).parent / "shipped/automations"  # in a checkout a link to deployments/automations


def apply_automations(folder: Path = FOLDER) -> dict[str, str]:
    """Makes the server's automations those of the folder: what was done by name, `created`, `changed` or `unchanged`.

    Raises `JobError` as `read_automations` does.
    """
    done = {}
    with get_client(sync_client=True) as client:
        for wanted in read_automations(folder):
            found = client.read_automations_by_name(wanted.name)
            if not found:
                client.create_automation(wanted)
                done[wanted.name] = "created"
                continue
            wanted.enabled = found[0].enabled
            if _content(found[0]) == _content(wanted):
                done[wanted.name] = "unchanged"
                continue
            client.update_automation(found[0].id, wanted)
            done[wanted.name] = "changed"
    return done


def read_automations(folder: Path = FOLDER) -> list[AutomationCore]:
    """Those of a folder. Raises `JobError` for a file that is no automation, and where there is no such folder."""
    if not folder.is_dir():
        raise JobError(f"expected automations, one file each, in {folder}, found no such folder.")
    return [_read(path) for path in sorted(folder.glob("*.yaml"))]


def _read(path: Path) -> AutomationCore:
    try:
        return AutomationCore.model_validate(yaml.safe_load(path.read_text()))
    except (ValidationError, yaml.YAMLError) as error:
        raise JobError(f"{path}: expected an automation as Prefect describes one: {error}") from None


def _content(automation: AutomationCore) -> dict[str, object]:
    """What a file can say; the server adds ids."""
    return AutomationCore.model_validate(automation.model_dump(mode="json")).model_dump(mode="json")
