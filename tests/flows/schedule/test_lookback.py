"""Inputs that come late: a run waits for them, and what changes after the publish is run again by a later night."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import CronSchedule
from prefect.flow_engine import run_flow
from prefect.logging import disable_run_logger
from prefect.states import Scheduled

from overnight.flows.batch_inference import batch_inference
from overnight.flows.job.model import Job
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.lookback import changed_days
from overnight.tasks.errors import InputError
from overnight.tasks.ingest.task import stream_inputs
from overnight.tasks.state.manifest import digest
from overnight.tasks.state.run import write_json
from tests.flows.conftest import RunJob

NIGHT = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=12)  # no other is due for hours
DAYS = [(NIGHT - timedelta(days=number)).date().isoformat() for number in range(1, 5)]  # the newest first


def write_input(folder: Path, day: str, *values: int) -> None:
    (folder / "in" / day).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": list(values)}), folder / "in" / day / f"{len(values)}.parquet")


def job(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": "late-data",
        "source": {"kind": "parquet", "path": f"{folder}/in/{{partition}}", **more.pop("source", {})},
        "sink": {"kind": "parquet", "path": f"{folder}/out"},
        **more,
    }


def receipt(folder: Path, day: str) -> dict[str, Any]:
    return dict(json.loads((folder / f"out/_overnight/date={day}/receipt.json").read_text()))


@pytest.fixture
def client(prefect_api: str, ray_session: None) -> Any:
    with get_client(sync_client=True) as client:
        yield client


def lookbacks(client: SyncPrefectClient, deployment: UUID) -> list[FlowRun]:
    wanted = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[deployment]), tags=FlowRunFilterTags(all_=["lookback"])
    )
    return sorted(client.read_flow_runs(flow_run_filter=wanted), key=lambda run: str(run.parameters["partition"]))


@pytest.mark.slow
def test_days_whose_inputs_changed_since_are_run_again_once(
    client: SyncPrefectClient, run_job: RunJob, tmp_path: Path
) -> None:
    yesterday, changed, gone, too_early = DAYS
    cron = f"0 {NIGHT.hour} * * *"
    described = job(tmp_path, schedule={"cron": cron, "lookback_days": 2})
    for day in DAYS:
        write_input(tmp_path, day, 1, 2)
    before = {day: run_job(described, day) for day in (changed, gone, too_early)}
    for day in (changed, too_early):
        write_input(tmp_path, day, 3, 4, 5)
    for file in (tmp_path / "in" / gone).iterdir():
        file.unlink()
    path = tmp_path / "late-data.yaml"
    path.write_text(yaml.safe_dump(described))
    deployment = client.create_deployment(
        client.create_flow(batch_inference),
        "late-data",
        schedules=[DeploymentScheduleCreate(schedule=CronSchedule(cron=cron, timezone="UTC"))],
        parameters={"job": str(path)},
    )
    moment = NIGHT.isoformat()
    body = {"start_time": moment, "end_time": moment, "min_time": 0.0, "min_runs": 1}
    client.request("POST", f"/deployments/{deployment}/schedule", json=body)  # type: ignore[arg-type]
    mine = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment]))
    [nightly] = [run for run in client.read_flow_runs(flow_run_filter=mine) if run.expected_start_time == NIGHT]
    for _ in range(2):  # the second time, what it asks for is there, and its own partition is fresh
        run_flow(batch_inference, flow_run=client.read_flow_run(nightly.id), return_type="state")
        [again] = lookbacks(client, deployment)
        client.set_flow_run_state(nightly.id, Scheduled(), force=True)
    assert receipt(tmp_path, yesterday)["rows_in"] == 2
    assert again.parameters["partition"] == changed
    assert again.parameters["reason"] == f"inputs changed, seen by the run of {yesterday}"
    run_flow(batch_inference, flow_run=again, return_type="state")
    assert {day: receipt(tmp_path, day)["rows_in"] for day in before} == {changed: 5, gone: 2, too_early: 2}
    assert len(lookbacks(client, deployment)) == 1  # a run that names its partition looks nowhere


@pytest.mark.slow
def test_a_run_waits_for_its_marker_and_publishes_nothing_without(run_job: RunJob, tmp_path: Path) -> None:
    write_input(tmp_path, "2026-01-02", 1, 2)
    without = run_job(job(tmp_path / "other", source={"path": f"{tmp_path}/in/{{partition}}"}), "2026-01-02")
    impatient = job(tmp_path, source={"wait_for": {"file": "_SUCCESS", "timeout_minutes": 0.01}})
    with pytest.raises(InputError, match=r"expected the file .*_SUCCESS, found none, after waiting for 0.01 minutes"):
        run_job(impatient, "2026-01-02")
    failure = json.loads((tmp_path / "out/_overnight/date=2026-01-02/failure.json").read_text())
    assert (failure["stage"], failure["error_type"]) == ("ingest", "InputError")
    assert run_job(impatient, "2026-01-02", limit_rows=1)["limit_rows"] == 1  # a sample takes what is there
    (tmp_path / "in/2026-01-02/_SUCCESS").touch()
    published = run_job(impatient, "2026-01-02")
    assert published["rows_in"] == 2  # the marker is no input
    assert published["fingerprint"] == without["fingerprint"]
    (tmp_path / "in/2026-01-02/_SUCCESS").unlink()
    assert run_job(impatient, "2026-01-02") == published  # what is published and fresh never waits


def test_a_day_whose_inputs_were_removed_keeps_what_it_has_also_where_it_may_be_empty(tmp_path: Path) -> None:
    for day in DAYS[:3]:
        write_input(tmp_path, day, 1)
    loaded = Job.model_validate(job(tmp_path, source={"allow_empty": True}))
    run = describe_run(loaded, DAYS[0])
    for day in DAYS[1:3]:
        receipt = {"job": loaded.name, "inputs": digest(stream_inputs(loaded.source, day))}
        write_json(replace(run, partition=day).ledger / "receipt.json", receipt)
    write_input(tmp_path, DAYS[1], 1, 2)
    (tmp_path / "in" / DAYS[2] / "1.parquet").unlink()
    with disable_run_logger():
        assert changed_days(loaded, run, 3) == [DAYS[1]]
