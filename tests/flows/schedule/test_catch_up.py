"""What is caught up after downtime: decided in tables, then by a real server whose runs are five days old."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.schedules import CronSchedule
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from overnight.flows.batch_inference import batch_inference
from overnight.flows.job.model import Job
from overnight.flows.schedule.catch_up import LATE, missed_cron_times, picked_up_at, why_skipped
from overnight.flows.schedule.cron import cron_times


def job(cron: str = "30 2 * * *", **schedule: Any) -> Job:
    return Job.model_validate(
        {
            "name": "a",
            "source": {"kind": "csv", "path": "s3://b/{partition}"},
            "sink": {"kind": "parquet", "path": "s3://b/out"},
            "schedule": {"cron": cron, **schedule},
        }
    )


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def picked_up(late: Job, scheduled: str, now: str, *taken: str) -> tuple[list[str], str]:
    """The days that are given a run, and why this run is skipped, of a run that had to wait until `now`."""
    assert late.schedule
    times = {utc(scheduled), *map(utc, taken)}
    due = cron_times(late.schedule, utc(scheduled), utc(now))
    new = missed_cron_times(late.schedule, due, times)
    days = [fire.astimezone(late.timezone).date().isoformat() for fire in new]
    return days, why_skipped(late, utc(scheduled), utc(now), times | set(new))


FIVE_DAYS = ("2026-11-14T02:30", "2026-11-18T09:00", "2026-11-15T02:30", "2026-11-16T02:30")


def test_latest_runs_the_newest_day_alone_and_says_which():
    days, why = picked_up(job(catch_up="latest"), *FIVE_DAYS)
    assert days == ["2026-11-18"]
    assert "2026-11-13 was due at 2026-11-14 02:30 UTC" in why
    assert "2026-11-17, due at 2026-11-18 02:30 UTC, runs instead" in why
    newest = ("2026-11-18T02:30", "2026-11-18T09:00")
    assert picked_up(job(catch_up="latest"), *newest) == ([], "")


def test_latest_without_a_run_for_the_newest_day_keeps_the_newest_that_has_one():
    """As where the deployment's schedule was switched off in the meantime."""
    late, taken = job(catch_up="latest"), {utc("2026-11-14T02:30"), utc("2026-11-15T02:30")}
    assert "2026-11-14, due at" in why_skipped(late, utc("2026-11-14T02:30"), utc("2026-11-18T09:00"), taken)
    assert why_skipped(late, utc("2026-11-15T02:30"), utc("2026-11-18T09:00"), taken) == ""


def test_none_runs_what_is_little_late_and_gives_no_day_a_run():
    scheduled = utc("2026-11-18T02:30")
    for late, ran in ((timedelta(0), True), (LATE, True), (LATE + timedelta(seconds=1), False)):
        why = why_skipped(job(catch_up="none"), scheduled, scheduled + late, {scheduled})
        assert (why == "") is ran, late
    days, why = picked_up(job(catch_up="none"), *FIVE_DAYS)
    assert days == []
    assert "could not start before 2026-11-18 09:00 UTC: schedule.catch_up is 'none'" in why


@pytest.mark.parametrize("policy", ["all", "latest", "none"])
def test_a_run_that_starts_in_time_or_before_it_runs(policy):
    for now in ("2026-11-18T02:30", "2026-11-18T03:00", "2026-11-17T20:00", "2020-01-01T00:00"):
        made_ahead = ("2026-11-19T02:30", "2026-11-20T02:30")
        assert picked_up(job(catch_up=policy), "2026-11-18T02:30", now, *made_ahead) == ([], "")


def test_a_run_that_was_picked_up_in_time_may_wait_for_its_turn_as_long_as_it_takes():
    """It counts when a worker first took it, not when it had a slot."""
    names = ["Scheduled", "Late", "AwaitingConcurrencySlot", "AwaitingConcurrencySlot", "Pending", "Running"]
    start = utc("2026-11-18T02:30")
    states = [
        State(type="SCHEDULED", name=name, timestamp=start + timedelta(minutes=40 * number))
        for number, name in enumerate(names)
    ]
    assert picked_up_at(states[::-1]) == start + timedelta(minutes=80)
    assert picked_up_at(states[:2]) is None


# On a real server: a deployment with a schedule, days of input, and runs as the scheduler makes them.

NEWEST = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=12)  # no other is due for hours
NIGHTS = [NEWEST - timedelta(days=number) for number in range(4, -1, -1)]  # the oldest first
PARTITIONS = [(night - timedelta(days=1)).date().isoformat() for night in NIGHTS]
CRON = f"0 {NEWEST.hour} * * *"


class Down:
    """A deployment that was down for five days. The scheduler had made three runs ahead."""

    def __init__(self, client: SyncPrefectClient, folder: Path, catch_up: str) -> None:
        self.client, self.folder = client, folder
        for day in PARTITIONS:
            (folder / "in" / day).mkdir(parents=True)
            pq.write_table(pa.table({"x": [1, 2]}), folder / "in" / day / "a.parquet")
        name = f"nightly-{catch_up}"
        described = {
            "name": name,
            "source": {"kind": "parquet", "path": f"{folder}/in/{{partition}}"},
            "sink": {"kind": "parquet", "path": f"{folder}/out"},
            "schedule": {"cron": CRON, "catch_up": catch_up},
        }
        (folder / "job.yaml").write_text(yaml.safe_dump(described))
        cron = CronSchedule(cron=CRON, timezone="UTC")
        self.deployment = client.create_deployment(
            client.create_flow(batch_inference),
            name,
            schedules=[DeploymentScheduleCreate(schedule=cron)],
            parameters={"job": str(folder / "job.yaml")},
        )
        for night in NIGHTS[:3]:
            self.schedule(night)

    def schedule(self, night: datetime) -> None:
        moment = night.isoformat()
        body = {"start_time": moment, "end_time": moment, "min_time": 0.0, "min_runs": 1}
        self.client.request("POST", f"/deployments/{self.deployment}/schedule", json=body)  # type: ignore[arg-type]

    def runs(self) -> list[FlowRun]:
        """The runs that were due, the oldest first."""
        mine = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[self.deployment]))
        found = [run for run in self.client.read_flow_runs(flow_run_filter=mine) if run.expected_start_time]
        due = [run for run in found if run.expected_start_time < datetime.now(UTC)]
        return sorted(due, key=lambda run: (run.expected_start_time, run.created))

    def run_until_nothing_is_due(self) -> None:
        """Each run that waits, the oldest first, as a deployment with a concurrency limit of 1 runs them."""
        while waiting := [run for run in self.runs() if run.state and run.state.is_scheduled()]:
            run(waiting[0])

    def published(self) -> list[str]:
        return sorted(path.parent.name[5:] for path in self.folder.glob("out/_overnight/date=*/receipt.json"))


def run(flow_run: FlowRun) -> State[Any]:
    found: State[Any] = run_flow(batch_inference, flow_run=flow_run, return_type="state")  # type: ignore[assignment]
    return found


@pytest.fixture
def client(prefect_api: str, ray_session: None) -> Any:
    with get_client(sync_client=True) as client:
        yield client


def names(runs: list[FlowRun]) -> list[tuple[str, str]]:
    return [(run.name.partition("/")[2], run.state.name if run.state else "") for run in runs]


@pytest.mark.slow
def test_five_days_down_all(client: SyncPrefectClient, tmp_path: Path) -> None:
    down = Down(client, tmp_path, "all")
    down.run_until_nothing_is_due()
    assert down.published() == PARTITIONS
    assert names(down.runs()) == [(day, "Completed") for day in PARTITIONS]
    receipt = json.loads((tmp_path / f"out/_overnight/date={PARTITIONS[3]}/receipt.json").read_text())
    assert receipt["scheduled_for"] == f"{NIGHTS[3]:%Y-%m-%dT%H}:00:00.000Z"


@pytest.mark.slow
def test_five_days_down_latest(client: SyncPrefectClient, tmp_path: Path) -> None:
    down = Down(client, tmp_path, "latest")
    first, *_ = down.runs()
    state = run(first)
    assert (state.type, state.name) == ("COMPLETED", "Skipped")
    assert f"{PARTITIONS[0]} was due at" in state.message
    assert f"{PARTITIONS[-1]}, due at {NEWEST:%Y-%m-%d %H:%M} UTC, runs instead" in state.message
    down.run_until_nothing_is_due()
    assert down.published() == PARTITIONS[-1:]
    late = [*PARTITIONS[:3], PARTITIONS[-1]]
    assert names(down.runs()) == list(zip(late, ["Skipped", "Skipped", "Skipped", "Completed"], strict=True))
    client.set_flow_run_state(first.id, Scheduled(), force=True)  # as Retry in the UI
    assert run(client.read_flow_run(first.id)).name == "Completed"
    assert down.published() == [PARTITIONS[0], PARTITIONS[-1]]


@pytest.mark.slow
def test_five_days_down_none(client: SyncPrefectClient, tmp_path: Path) -> None:
    down = Down(client, tmp_path, "none")
    down.run_until_nothing_is_due()
    assert down.published() == []
    assert names(down.runs()) == [(day, "Skipped") for day in PARTITIONS[:3]]


@pytest.mark.parametrize("policy", ["latest", "none"])
def test_what_a_person_or_a_backfill_asks_for_is_never_skipped(
    client: SyncPrefectClient, tmp_path: Path, policy: str
) -> None:
    down = Down(client, tmp_path, policy)
    long_ago = Scheduled(scheduled_time=NIGHTS[1])
    for parameters in ({"partition": PARTITIONS[1]}, {}):
        asked = client.create_flow_run_from_deployment(down.deployment, parameters=parameters, state=long_ago)
        assert run(client.read_flow_run(asked.id)).name == "Completed"
    assert down.published() == [PARTITIONS[1]]
