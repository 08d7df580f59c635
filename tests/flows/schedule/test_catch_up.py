"""What is caught up after downtime: decided in tables, then by a real server whose runs are five days old.

`tests/contracts/orchestration/test_days.py` draws the downtimes.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Scheduled

from overnight.flows.job.model import Job
from overnight.flows.schedule.catch_up import LATE, missed_cron_times, picked_up_at, why_skipped
from overnight.flows.schedule.cron import cron_times
from tests import jobs
from tests.flows.schedule.deployed import NIGHT, Deployed, start


def job(catch_up: str) -> Job:
    return jobs.load(Path("/x"), schedule={"cron": "30 2 * * *", "catch_up": catch_up})


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def picked_up(policy: str, scheduled: str, now: str, *taken: str) -> tuple[list[str], str]:
    """The days that are given a run, and why this run is skipped, of a run that had to wait until `now`."""
    late = job(policy)
    assert late.schedule
    times = {utc(scheduled), *map(utc, taken)}
    new = missed_cron_times(late.schedule, cron_times(late.schedule, utc(scheduled), utc(now)), times)
    return [f"{fire:%m-%d}" for fire in new], why_skipped(late, utc(scheduled), utc(now), times | set(new))


def test_the_days_of_a_downtime_are_given_runs_and_skipped_as_the_job_says() -> None:
    five_days = ("2026-11-14T02:30", "2026-11-18T09:00", "2026-11-15T02:30", "2026-11-16T02:30")
    assert picked_up("all", *five_days) == (["11-17", "11-18"], "")
    days, why = picked_up("latest", *five_days)
    assert days == ["11-18"]
    assert "2026-11-13 was due at 2026-11-14 02:30 UTC" in why
    assert "2026-11-17, due at 2026-11-18 02:30 UTC, runs instead" in why
    days, why = picked_up("none", *five_days)
    assert days == []
    assert "could not start before 2026-11-18 09:00 UTC: schedule.catch_up is 'none'" in why


def test_latest_without_a_run_for_the_newest_day_keeps_the_newest_that_has_one() -> None:
    """The deployment's schedule was switched off in the meantime."""
    late, taken = job("latest"), {utc("2026-11-14T02:30"), utc("2026-11-15T02:30")}
    assert "2026-11-14, due at" in why_skipped(late, utc("2026-11-14T02:30"), utc("2026-11-18T09:00"), taken)
    assert why_skipped(late, utc("2026-11-15T02:30"), utc("2026-11-18T09:00"), taken) == ""


def test_none_runs_what_is_little_late() -> None:
    scheduled = utc("2026-11-18T02:30")
    for late, ran in ((timedelta(0), True), (LATE, True), (LATE + timedelta(seconds=1), False)):
        assert (why_skipped(job("none"), scheduled, scheduled + late, {scheduled}) == "") is ran, late


@pytest.mark.parametrize("policy", ["all", "latest", "none"])
def test_a_run_that_starts_in_time_or_before_it_runs(policy: str) -> None:
    for now in ("2026-11-18T02:30", "2026-11-18T03:00", "2026-11-17T20:00", "2020-01-01T00:00"):
        made_ahead = ("2026-11-19T02:30", "2026-11-20T02:30")
        assert picked_up(policy, "2026-11-18T02:30", now, *made_ahead) == ([], "")


def test_a_run_that_was_picked_up_in_time_may_wait_for_its_turn_as_long_as_it_takes() -> None:
    """It counts when a worker first took it, not when it had a slot."""
    names = ["Scheduled", "Late", "AwaitingConcurrencySlot", "AwaitingConcurrencySlot", "Pending", "Running"]
    begun = utc("2026-11-18T02:30")
    times = [begun + timedelta(minutes=40 * number) for number in range(len(names))]
    states = [State(type="SCHEDULED", name=name, timestamp=time) for name, time in zip(names, times, strict=True)]
    assert picked_up_at(states[::-1]) == times[2]
    assert picked_up_at(states[:2]) is None


# On a real server: a deployment that was down for five days, for which the scheduler had made three runs ahead.

NIGHTS = [NIGHT - timedelta(days=number) for number in range(4, -1, -1)]  # the oldest first
DAYS = [(night - timedelta(days=1)).date().isoformat() for night in NIGHTS]


def down(client: SyncPrefectClient, folder: Path, catch_up: str) -> Deployed:
    jobs.write_days(folder, DAYS)
    deployed = Deployed(client, folder, catch_up=catch_up)
    for night in NIGHTS[:3]:
        deployed.schedule(night)
    return deployed


def run_until_nothing_is_due(deployed: Deployed) -> list[tuple[str, str]]:
    """Start each run that waits, the oldest first. Return the day and the state of all runs."""
    while waiting := [run for run in deployed.due() if run.state and run.state.is_scheduled()]:
        start(waiting[0])
    return [(run.name.partition("/")[2], run.state.name) for run in deployed.due() if run.state and run.state.name]


def published(folder: Path) -> list[str]:
    return sorted(path.parent.name[5:] for path in folder.glob("out/_overnight/date=*/receipt.json"))


@pytest.mark.slow
def test_of_five_days_down_the_latest_is_published_and_a_skipped_run_that_is_retried(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    deployed = down(client, tmp_path, "latest")
    names = ["Skipped", "Skipped", "Skipped", "Completed"]
    assert run_until_nothing_is_due(deployed) == list(zip([*DAYS[:3], DAYS[4]], names, strict=True))
    assert published(tmp_path) == DAYS[4:]
    receipt = json.loads((tmp_path / f"out/_overnight/date={DAYS[4]}/receipt.json").read_text())
    assert receipt["scheduled_for"] == f"{NIGHT:%Y-%m-%dT%H}:00:00.000Z"
    first: FlowRun = deployed.due()[0]
    assert first.state
    assert first.state.is_completed()
    assert f"{DAYS[4]}, due at {NIGHT:%Y-%m-%d %H:%M} UTC, runs instead" in str(first.state.message)
    client.set_flow_run_state(first.id, Scheduled(), force=True)  # as Retry in the UI
    assert start(client.read_flow_run(first.id)).name == "Completed"
    assert published(tmp_path) == [DAYS[0], DAYS[4]]


@pytest.mark.slow
def test_what_a_person_or_a_backfill_asks_for_is_never_skipped(client: SyncPrefectClient, tmp_path: Path) -> None:
    deployed = down(client, tmp_path, "none")
    assert start(deployed.due()[0]).name == "Skipped"
    long_ago = Scheduled(scheduled_time=NIGHTS[1])
    parameters: dict[str, Any]
    for parameters in ({"partition": DAYS[1]}, {}):
        asked = client.create_flow_run_from_deployment(deployed.id, parameters=parameters, state=long_ago)
        assert start(client.read_flow_run(asked.id)).name == "Completed"
    assert published(tmp_path) == [DAYS[1]]
