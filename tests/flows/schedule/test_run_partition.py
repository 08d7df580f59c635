"""A flow run's partition: worked out once, whatever happens to the run and however late it starts."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.flow_engine import run_flow
from prefect.states import AwaitingConcurrencySlot, AwaitingRetry, Pending, Scheduled

from overnight.flows.batch_inference import batch_inference

SCHEDULED = datetime(2025, 11, 19, 23, 30, tzinfo=UTC)  # in Berlin it is the 20th


@pytest.fixture
def client(prefect_api: str, ray_session: None) -> Any:
    with get_client(sync_client=True) as client:
        yield client


def write_job(folder: Path, **schedule: Any) -> dict[str, str]:
    described = {
        "name": "steady",
        "source": {"kind": "parquet", "path": f"{folder}/in/{{partition}}"},
        "sink": {"kind": "parquet", "path": f"{folder}/out"},
        "schedule": {"cron": "30 0 * * *", "timezone": "Europe/Berlin", **schedule},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(described))
    return {"job": str(folder / "job.yaml")}


def add_input(folder: Path, day: str) -> None:
    (folder / "in" / day).mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2]}), folder / "in" / day / "a.parquet")


def start(client: SyncPrefectClient, run_id: UUID) -> FlowRun:
    """Starts a flow run as a worker does; the run afterwards."""
    run_flow(batch_inference, flow_run=client.read_flow_run(run_id), return_type="state")
    return client.read_flow_run(run_id)


def outcome(run: FlowRun) -> tuple[str, str, set[str]]:
    return run.state_type.value if run.state_type else "", run.name, set(run.tags)


def test_it_stays_over_retries_a_crash_a_wait_for_a_slot_midnight_and_another_time_zone(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    parameters = write_job(tmp_path)
    run = client.create_flow_run(batch_inference, parameters=parameters, state=Scheduled(scheduled_time=SCHEDULED))
    waiting = AwaitingConcurrencySlot(scheduled_time=SCHEDULED + timedelta(days=1))
    client.set_flow_run_state(run.id, waiting, force=True)
    the_day = ("steady/2025-11-19", {"job:steady", "partition:2025-11-19"})
    assert outcome(start(client, run.id)) == ("FAILED", *the_day)  # there is no input yet
    client.set_flow_run_state(run.id, AwaitingRetry(scheduled_time=SCHEDULED + timedelta(days=3)), force=True)
    write_job(tmp_path, timezone="America/New_York", offset_days=-7)
    assert outcome(start(client, run.id)) == ("FAILED", *the_day)
    add_input(tmp_path, "2025-11-19")
    client.set_flow_run_state(run.id, Scheduled(), force=True)  # as the automations do, without a time
    assert outcome(start(client, run.id)) == ("COMPLETED", *the_day)
    receipt = json.loads((tmp_path / "out/_overnight/date=2025-11-19/receipt.json").read_text())
    assert (receipt["partition"], receipt["scheduled_for"]) == ("2025-11-19", "2025-11-19T23:30:00.000Z")


def test_a_partition_that_somebody_named_is_tagged_and_comes_from_no_schedule(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    parameters = {**write_job(tmp_path), "partition": "2024-02-29"}
    add_input(tmp_path, "2024-02-29")
    run = client.create_flow_run(batch_inference, parameters=parameters, state=Pending(), tags=["mine"])
    expected = ("COMPLETED", "steady/2024-02-29", {"mine", "job:steady", "partition:2024-02-29"})
    assert outcome(start(client, run.id)) == expected
    receipt = json.loads((tmp_path / "out/_overnight/date=2024-02-29/receipt.json").read_text())
    assert receipt["scheduled_for"] is None


def test_a_setting_of_the_run_decides_its_name_too(client: SyncPrefectClient, tmp_path: Path) -> None:
    parameters = {**write_job(tmp_path), "settings": ["schedule.offset_days=0"]}
    run = client.create_flow_run(batch_inference, parameters=parameters, state=Scheduled(scheduled_time=SCHEDULED))
    assert start(client, run.id).name == "steady/2025-11-20"


def test_a_run_reads_its_job_file_once(
    client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {**write_job(tmp_path), "partition": "2024-02-29", "settings": ["state=" + str(tmp_path / "state")]}
    add_input(tmp_path, "2024-02-29")
    read, times = Path.read_text, list[Path]()

    def counted(path: Path, *arguments: Any, **named: Any) -> str:
        times.extend([path] if path.name == "job.yaml" else [])
        return read(path, *arguments, **named)

    run = client.create_flow_run(batch_inference, parameters=parameters, state=Pending())
    monkeypatch.setattr(Path, "read_text", counted)
    assert outcome(start(client, run.id))[0] == "COMPLETED"
    assert len(times) == 1


@pytest.mark.parametrize("partition", ["", "all"])  # a job with days has no partition `all`
def test_a_run_without_a_valid_job_and_partition_is_named_invalid(
    client: SyncPrefectClient, tmp_path: Path, partition: str
) -> None:
    parameters = {**write_job(tmp_path), "partition": partition}
    if not partition:
        (tmp_path / "job.yaml").write_text("name: steady")
    run = client.create_flow_run(batch_inference, parameters=parameters, state=Pending())
    assert outcome(start(client, run.id))[:2] == ("FAILED", "job/invalid")
