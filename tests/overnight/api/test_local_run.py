"""What a run of this process has from Prefect."""

import json
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.events.schemas.automations import EventTrigger
from prefect.settings import get_current_settings
from prefect.states import Failed, Running

import overnight as api
from overnight.api import local_run
from overnight.flows.deploy.automations import read_automations
from overnight.flows.runs.flow_run import failed_before_it_began
from tests import jobs
from tests.flows.conftest import Overnight


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
    prefect_api: str, ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(local_run, "run_flow", lambda flow, flow_run: begun.append(flow_run.name))
    jobs.write_days(tmp_path, ["2026-01-02"])
    job = jobs.write_job(tmp_path / "job.yaml")
    api.run(job, "2026-01-02", progress=False)
    api.backfill(job, "2026-01-02", "2026-01-02", progress=False)
    assert begun == ["small/2026-01-02", "small/2026-01-02..2026-01-02"]


@pytest.mark.slow
def test_a_second_run_says_that_nothing_ran_and_what_would_run_it_and_prints_the_same_json(
    overnight: Overnight, tmp_path: Path
) -> None:
    jobs.write_days(tmp_path, ["2026-01-02"])
    jobs.write_job(tmp_path / "job.yaml")
    run = ("run", "job.yaml", "--partition", "2026-01-02")
    first, second = overnight(*run, "--json"), overnight(*run, "--json")
    assert json.loads(second.stdout) == json.loads(first.stdout)
    assert "nothing ran" not in first.stderr
    assert "small: nothing ran: 2026-01-02 is published and not stale, since" in second.stderr
    assert "It runs again with --force, or once its inputs, settings, models or code change." in second.stderr
    assert overnight(*run, "-q").stderr == ""


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
