"""A flow run's partition: worked out once, whatever happens to the run and however late it starts."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.states import AwaitingConcurrencySlot, AwaitingRetry, Pending, Scheduled

from overnight.flows.batch_inference import batch_inference
from tests import jobs
from tests.flows.schedule.deployed import Deployed, start

SCHEDULED = datetime(2025, 11, 19, 23, 30, tzinfo=UTC)  # in Berlin it is the 20th


def write_job(folder: Path, **schedule: Any) -> dict[str, Any]:
    settings = {"cron": "30 0 * * *", "timezone": "Europe/Berlin", **schedule}
    return {"job": str(jobs.write_job(folder / "job.yaml", schedule=settings))}


def outcome(client: SyncPrefectClient, run_id: UUID) -> tuple[str, str, set[str]]:
    """Start a flow run. Return its final state, its name and its tags."""
    start(client.read_flow_run(run_id))
    run = client.read_flow_run(run_id)
    return run.state_type.value if run.state_type else "", run.name, set(run.tags)


def receipt(folder: Path, day: str) -> dict[str, Any]:
    return dict(json.loads((folder / f"out/_overnight/date={day}/receipt.json").read_text()))


@pytest.mark.slow
def test_it_stays_over_retries_a_crash_a_wait_for_a_slot_midnight_and_another_time_zone(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    parameters = write_job(tmp_path)
    run = client.create_flow_run(batch_inference, parameters=parameters, state=Scheduled(scheduled_time=SCHEDULED))
    waiting = AwaitingConcurrencySlot(scheduled_time=SCHEDULED + timedelta(days=1))
    client.set_flow_run_state(run.id, waiting, force=True)
    the_day = ("small/2025-11-19", {"job:small", "partition:2025-11-19"})
    assert outcome(client, run.id) == ("FAILED", *the_day)  # there is no input yet
    client.set_flow_run_state(run.id, AwaitingRetry(scheduled_time=SCHEDULED + timedelta(days=3)), force=True)
    write_job(tmp_path, timezone="America/New_York", offset_days=-7)
    assert outcome(client, run.id) == ("FAILED", *the_day)
    jobs.write_days(tmp_path, ["2025-11-19"])
    client.set_flow_run_state(run.id, Scheduled(), force=True)  # as the automations do, without a time
    assert outcome(client, run.id) == ("COMPLETED", *the_day)
    found = receipt(tmp_path, "2025-11-19")
    assert (found["partition"], found["scheduled_for"]) == ("2025-11-19", "2025-11-19T23:30:00.000Z")


def test_a_partition_that_a_person_named_comes_from_no_schedule_and_its_run_reads_the_job_file_once(
    client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {**write_job(tmp_path), "partition": "2024-02-29", "settings": [f"state={tmp_path}/out/_overnight"]}
    jobs.write_days(tmp_path, ["2024-02-29"])
    read, times = Path.read_text, list[Path]()

    def counted(path: Path, *arguments: Any, **named: Any) -> str:
        times.extend([path] if path.name == "job.yaml" else [])
        return read(path, *arguments, **named)

    run = client.create_flow_run(batch_inference, parameters=parameters, state=Pending(), tags=["mine"])
    monkeypatch.setattr(Path, "read_text", counted)
    expected = ("COMPLETED", "small/2024-02-29", {"mine", "job:small", "partition:2024-02-29"})
    assert outcome(client, run.id) == expected
    assert len(times) == 1
    assert receipt(tmp_path, "2024-02-29")["scheduled_for"] is None


def test_a_setting_of_the_run_decides_its_name_too(client: SyncPrefectClient, tmp_path: Path) -> None:
    parameters = {**write_job(tmp_path), "settings": ["schedule.offset_days=0"]}
    run = client.create_flow_run(batch_inference, parameters=parameters, state=Scheduled(scheduled_time=SCHEDULED))
    assert outcome(client, run.id)[1] == "small/2025-11-20"


@pytest.mark.parametrize("partition", ["", "all"])  # a job with days has no partition `all`
def test_a_run_without_a_valid_job_and_partition_is_named_invalid(
    client: SyncPrefectClient, tmp_path: Path, partition: str
) -> None:
    parameters = {**write_job(tmp_path), "partition": partition}
    if not partition:
        (tmp_path / "job.yaml").write_text("name: small")
    run = client.create_flow_run(batch_inference, parameters=parameters, state=Pending())
    assert outcome(client, run.id)[:2] == ("FAILED", "job/invalid")


@pytest.mark.parametrize("is_deployed", [True, False])
def test_only_a_run_of_a_deployment_may_not_name_another_place(
    client: SyncPrefectClient, tmp_path: Path, is_deployed: bool
) -> None:
    parameters = {"partition": "2024-02-29", "settings": [f"sink.path={tmp_path}/elsewhere"]}
    jobs.write_days(tmp_path, ["2024-02-29"])
    if is_deployed:
        run = client.create_flow_run_from_deployment(Deployed(client, tmp_path).id, parameters=parameters)
    else:
        run = client.create_flow_run(batch_inference, parameters={**write_job(tmp_path), **parameters}, state=Pending())
    start(client.read_flow_run(run.id))
    message = str(client.read_flow_run(run.id).state.message)  # type: ignore[union-attr]
    assert ("found sink.path" in message) is is_deployed
    assert (tmp_path / "elsewhere").exists() is not is_deployed
