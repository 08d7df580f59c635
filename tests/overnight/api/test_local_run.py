"""What a run of this process has from Prefect."""

from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.events.schemas.automations import EventTrigger
from prefect.settings import get_current_settings
from prefect.states import Failed, Running

import overnight as api
from overnight.api import local_run
from overnight.flows.deploy.automations import read_automations
from overnight.flows.runs.flow_run import failed_before_it_began
from tests import jobs


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


def test_a_run_has_the_name_of_its_job_and_partition_before_it_begins(
    prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def begin(_: Any, flow_run: FlowRun) -> dict[str, Any]:
        begun.append(flow_run.name)
        return {}

    monkeypatch.setattr(local_run, "run_flow", begin)
    jobs.write_days(tmp_path, ["2026-01-02"])
    job = jobs.write_job(tmp_path / "job.yaml")
    api.run(job, "2026-01-02", progress=False)
    api.backfill(job, "2026-01-02", "2026-01-02", progress=False)
    assert begun == ["small/2026-01-02", "small/2026-01-02..2026-01-02"]


@pytest.mark.parametrize("reaches_the_flow", [False, True])
def test_a_run_whose_ray_does_not_start_is_failed_in_prefect(prefect_api: str, reaches_the_flow: bool) -> None:
    @flow
    def probe() -> None: ...

    with get_client(sync_client=True) as client:
        run = client.create_flow_run(probe, state=Running())
        if reaches_the_flow:
            client.set_flow_run_state(run.id, Failed(message="by the flow"), force=True)
        with pytest.raises(ConnectionError), failed_before_it_began(run.id):
            raise ConnectionError("no cluster")
        state = client.read_flow_run(run.id).state
    assert state is not None
    assert state.name == "Failed"
    assert state.message == "by the flow" if reaches_the_flow else "no cluster" in str(state.message)
