"""When a schedule fires, over the days on which the clock changes and leap days."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import CronSchedule

from overnight.flows.job.schedule import Schedule
from overnight.flows.schedule.cron import cron_times, last_cron_time, next_cron_time


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def between(after: str, until: str, zone: str = "UTC") -> list[str]:
    found = cron_times(Schedule(cron="30 2 * * *", timezone=zone), utc(after), utc(until))
    return [f"{fire:%m-%d %H:%M}" for fire in found]


@pytest.mark.parametrize(
    ("zone", "after", "until", "expected"),
    [
        # 02:30 is not there on 29 March in Berlin and 8 March in New York; then it fires at 03:30, once.
        ("Europe/Berlin", "2026-03-27T12:00", "2026-03-30T12:00", ["03-28 01:30", "03-29 01:30", "03-30 00:30"]),
        ("America/New_York", "2026-03-06T12:00", "2026-03-09T12:00", ["03-07 07:30", "03-08 07:30", "03-09 06:30"]),
        # 02:30 is there twice on 25 October in Berlin, and the first time counts.
        ("Europe/Berlin", "2026-10-23T12:00", "2026-10-26T12:00", ["10-24 00:30", "10-25 00:30", "10-26 01:30"]),
        ("America/New_York", "2026-10-30T12:00", "2026-11-02T12:00", ["10-31 06:30", "11-01 07:30", "11-02 07:30"]),
        ("UTC", "2028-02-27T12:00", "2028-03-01T12:00", ["02-28 02:30", "02-29 02:30", "03-01 02:30"]),
        # The first bound is excluded and the last included.
        ("UTC", "2026-11-14T02:30", "2026-11-16T02:30", ["11-15 02:30", "11-16 02:30"]),
        ("UTC", "2026-11-14T02:30", "2026-11-14T02:30", []),
        ("UTC", "2026-11-14T02:30", "2026-11-10T02:30", []),
    ],
)
def test_it_fires_once_a_day_whatever_the_clock_does(zone: str, after: str, until: str, expected: list[str]) -> None:
    assert between(after, until, zone) == expected


def test_prefect_s_server_schedules_runs_at_the_same_times(request: pytest.FixtureRequest, prefect_api: str) -> None:
    """The days are those around each change of the clock, in a year of which the server takes no run for late."""
    crons = {"Europe/Berlin": ["30 2 * * *", "30 * * * *"], "America/New_York": ["0 2 * * *", "30 2 * * *"]}
    schedules = [Schedule(cron=cron, timezone=zone) for zone, found in crons.items() for cron in found]
    with get_client(sync_client=True) as client:
        flow = client.create_flow_from_name("test-fires")
        request.addfinalizer(lambda: delete_flow(flow))  # with its runs
        for number, schedule in enumerate(schedules):
            plain = CronSchedule(cron=schedule.cron, timezone=schedule.timezone)
            active = DeploymentScheduleCreate(schedule=plain, active=True)
            deployment = client.create_deployment(flow, f"{number}", schedules=[active])
            for day in ("2040-03-24", "2040-03-10", "2040-10-27", "2040-11-03"):
                after, until = utc(f"{day}T00:00"), utc(f"{day}T00:00") + timedelta(days=2, hours=12)
                expected = cron_times(schedule, after - timedelta(seconds=1), until)
                assert scheduled(client, deployment, after, until) == expected, (schedule, day)


def delete_flow(flow: Any) -> None:
    with get_client(sync_client=True) as client:
        client.delete_flow(flow)


def scheduled(client: Any, deployment: Any, after: datetime, until: datetime) -> list[datetime]:
    """The times of the runs that the server makes of a deployment's schedule."""
    window = {"start_time": after.isoformat(), "end_time": until.isoformat(), "min_runs": 100, "max_runs": 100}
    client.request("POST", f"/deployments/{deployment}/schedule", json=window).raise_for_status()
    asked = {
        "deployments": {"id": {"any_": [str(deployment)]}},
        "flow_runs": {"expected_start_time": {"after_": after.isoformat(), "before_": until.isoformat()}},
        "limit": 200,
    }
    runs = client.request("POST", "/flow_runs/filter", json=asked).json()
    return sorted(datetime.fromisoformat(run["expected_start_time"]) for run in runs)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_where_one_looks_from_changes_no_time(zone: str) -> None:
    """From every half hour of the days around a change of the clock, the rest of the same list is found."""
    for day in ("2026-03-07", "2026-03-28", "2026-10-24", "2026-10-31"):
        start = utc(f"{day}T00:00")
        schedule, end = Schedule(cron="30 2 * * *", timezone=zone), start + timedelta(days=3)
        every = cron_times(schedule, start, end)
        assert len({fire.astimezone(ZoneInfo(zone)).date() for fire in every}) == len(every) >= 2
        for half_hours in range(96):
            after = start + timedelta(minutes=30 * half_hours)
            assert cron_times(schedule, after, end) == [fire for fire in every if fire > after], after


def test_more_times_than_prefect_gives_at_once_are_all_found() -> None:
    found = cron_times(Schedule(cron="* * * * *"), utc("2026-11-14T00:00"), utc("2026-11-15T12:00"))
    assert len(found) == len(set(found)) == 36 * 60


@pytest.mark.parametrize(
    ("cron", "moment", "last", "following"),
    [
        ("0 2 * * *", "2026-11-19T02:00", "2026-11-18T02:00", "2026-11-20T02:00"),
        ("0 2 * * *", "2026-11-19T02:01", "2026-11-19T02:00", "2026-11-20T02:00"),
        ("0 2 * * 1", "2026-11-19T06:00", "2026-11-16T02:00", "2026-11-23T02:00"),
        ("0 2 29 2 *", "2027-11-19T06:00", "2024-02-29T02:00", "2028-02-29T02:00"),
        ("0 2 29 2 *", "2100-01-01T00:00", "2096-02-29T02:00", "2104-02-29T02:00"),
    ],
)
def test_the_last_and_the_next_fire_are_found_however_far_away(
    cron: str, moment: str, last: str, following: str
) -> None:
    schedule = Schedule(cron=cron)
    assert last_cron_time(schedule, utc(moment)) == utc(last)
    assert next_cron_time(schedule, utc(moment)) == utc(following)
