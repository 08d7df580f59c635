"""What a run of this process has from Prefect."""

from pathlib import Path
from typing import Any

import pytest
from prefect.events.schemas.automations import EventTrigger
from prefect.settings import get_current_settings

from overnight.api import local_run
from overnight.flows.deploy.automations import read_automations


def test_a_run_sends_heartbeats_before_the_automation_takes_it_for_dead(
    prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings(*_: Any, **__: Any) -> dict[str, Any]:
        return {"seconds": get_current_settings().flows.heartbeat_frequency}

    monkeypatch.setattr(local_run, "similarity_search", settings)
    seconds = local_run.search_locally(tmp_path / "job.yaml")["seconds"]
    [silent] = [one for one in read_automations() if one.name == "overnight-silent-run-has-crashed"]
    assert isinstance(silent.trigger, EventTrigger)
    assert 2 * seconds < silent.trigger.within.total_seconds()
