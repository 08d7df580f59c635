"""Promises about days, over drawn job files, ranges, clocks and ledgers: plans, statuses, catch-up and deadlines."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from overnight.flows.backfill import is_published
from overnight.flows.backfill_children import Outcome
from overnight.flows.backfill_plan import Request, left_out, make_plan, nothing_to_do
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import read_ledger
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.catch_up import LATE, missed_cron_times, why_skipped
from overnight.flows.schedule.cron import cron_times
from overnight.flows.schedule.deadlines import Deadline, deadline_of, latest_deadline
from overnight.flows.schedule.partitions import partitions_between, resolve_partition
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.state.lease import PartitionBusy
from overnight.tasks.state.run import write_json
from tests import jobs

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo", "Pacific/Kiritimati", "Pacific/Pago_Pago"]
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))
SCHEDULES = st.none() | st.fixed_dictionaries(
    {
        "cron": st.sampled_from(["0 2 * * *", "0 0 * * *", "59 23 * * *", "30 2 * * 1", "15 3 1 * *", "0 */6 * * *"]),
        "timezone": st.sampled_from(ZONES),
        "offset_days": st.sampled_from([-1, 0, -7, 2]),
    }
)
SOME = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])  # each writes a ledger
STATUSES = ("published", "missing", "failed")


@contextmanager
def drawn_job(schedule: dict[str, Any] | None) -> Iterator[Job]:
    with tempfile.TemporaryDirectory() as folder:
        yield jobs.load(Path(folder), schedule=schedule)


def record(job: Job, day: str, status: str) -> None:
    """Write what a run leaves in the ledger of a day."""
    run = replace(describe_run(job, day), partition=day)
    if status == "published":
        receipt = {"job": job.name, "generation": "g", "fingerprint": run.fingerprint, "ingredients": run.ingredients}
        receipt |= {"rows_in": 9, "rows_resumed": 0, "rows_quarantined": 0, "seconds": 1.0, "inputs": ""}
        write_json(run.ledger / "receipt.json", receipt)
    elif status == "failed":
        failure = {"stage": "infer", "error_message": "x", "failed_at": "2026-01-01T00:00:00Z", "attempt": "a"}
        write_json(run.ledger / "failure.json", {"job": job.name, **failure})


@SOME
@given(SCHEDULES, MOMENTS, st.integers(-40, 40), st.integers(0, 40), st.data())
def test_a_plan_has_each_day_once_that_is_due_scheduled_and_selected_and_no_day_to_come(
    schedule: dict[str, Any] | None, now: datetime, begins: int, length: int, data: st.DataObject
) -> None:
    with drawn_job(schedule) as job:
        due = date.fromisoformat(resolve_partition(job, None, None, now))
        start = due + timedelta(begins)
        end = start + timedelta(length)
        scheduled = [day for day in partitions_between(job, start, end) if date.fromisoformat(day) <= due]
        days = {day: data.draw(st.sampled_from(STATUSES)) for day in scheduled[:4]}
        for day, status in days.items():
            record(job, day, status)
        select = data.draw(st.sets(st.sampled_from(["missing", "failed", "all"]), min_size=1))
        order = data.draw(st.sampled_from(["oldest", "newest"]))
        request = Request("a", start, end, tuple(sorted(select)), order)
        steps = make_plan(job, request, now=now)
        expected = [day for day in scheduled if "all" in select or days.get(day, "missing") in select]
        assert [step.partition for step in steps] == sorted(expected, reverse=order == "newest")
        assert all(step.force == (step.entry.status == "published") for step in steps)
        to_come = [day for day in partitions_between(job, start, end) if date.fromisoformat(day) > due]
        if to_come and not steps:
            assert "to come" in nothing_to_do(job, request, now)
        told = left_out(job, request, steps, now)
        assert ("to come" in told) == bool(to_come)


@SOME
@given(SCHEDULES, MOMENTS, st.integers(-10, 10), st.integers(0, 20), st.booleans())
def test_a_status_lists_no_day_to_come_unless_it_ran(
    schedule: dict[str, Any] | None, now: datetime, begins: int, length: int, ran: bool
) -> None:
    with drawn_job(schedule) as job:
        due = date.fromisoformat(resolve_partition(job, None, None, now))
        start = due + timedelta(begins)
        end = start + timedelta(length)
        early = (due + timedelta(3)).isoformat()
        if ran:
            record(job, early, "published")
        found = {entry.partition: entry.status for entry in read_ledger(job, start, end, now=now)}
        later = {day: status for day, status in found.items() if date.fromisoformat(day) > due}
        assert later == ({early: "published"} if ran and start.isoformat() <= early <= end.isoformat() else {})
        assert [day for day in found if day not in later] == [
            day for day in partitions_between(job, start, end) if date.fromisoformat(day) <= due
        ]


@SOME
@given(SCHEDULES.filter(bool), MOMENTS, st.timedeltas(timedelta(0), timedelta(days=12)), st.integers(0, 5))
def test_a_downtime_of_any_length_runs_what_catch_up_says_and_no_day_twice(
    schedule: dict[str, Any], began: datetime, length: timedelta, made_ahead: int
) -> None:
    ended = began + length
    fires = cron_times(jobs.load(Path("/x"), schedule=schedule).schedule, began, ended)  # type: ignore[arg-type]
    assume(fires)
    for policy in ("all", "latest", "none"):
        job = jobs.load(Path("/x"), schedule={**schedule, "catch_up": policy})
        assert job.schedule
        runs = set(fires[: made_ahead + 1])
        ran: list[datetime] = []
        waiting = sorted(runs)
        while waiting:
            fire = waiting.pop(0)
            due = cron_times(job.schedule, fire, ended)
            missed = missed_cron_times(job.schedule, due, runs)
            runs |= set(missed)
            waiting = sorted({*waiting, *missed})
            if not why_skipped(job, fire, ended, runs):
                ran.append(fire)
        expected = {"all": fires, "latest": fires[-1:], "none": [fire for fire in runs if ended - fire <= LATE]}
        assert ran == sorted(expected[policy])


# The schedule, a moment, the partition whose deadline was the last before that moment, and that deadline, all in UTC.
DEADLINES: list[tuple[dict[str, Any], str, str, str]] = [
    ({}, "2026-11-19T06:00", "2026-11-18", "2026-11-19T06:00"),
    ({}, "2026-11-19T05:59", "2026-11-17", "2026-11-18T06:00"),
    ({}, "2026-11-19T23:00", "2026-11-18", "2026-11-19T06:00"),
    ({}, "2028-03-01T06:00", "2028-02-29", "2028-03-01T06:00"),
    ({"cron": "0 22 * * *"}, "2026-11-19T06:00", "2026-11-17", "2026-11-19T06:00"),  # a deadline before the hour
    ({"cron": "0 2 * * 1"}, "2026-11-19T06:00", "2026-11-15", "2026-11-16T06:00"),  # between two weekly runs
    ({"offset_days": 0}, "2026-11-19T06:00", "2026-11-19", "2026-11-19T06:00"),
    ({"timezone": "America/New_York"}, "2026-11-19T11:00", "2026-11-18", "2026-11-19T11:00"),
    # A check at 02:30, which is not there or twice there, runs when the scheduler runs it, and finds its own day.
    *[
        ({"cron": "15 0 * * *", "timezone": zone, "deadline": "02:30"}, moment, partition, moment)
        for zone, moment, partition in [
            ("Europe/Berlin", "2026-03-29T01:30", "2026-03-28"),
            ("Europe/Berlin", "2026-03-30T00:30", "2026-03-29"),
            ("Europe/Berlin", "2026-10-25T00:30", "2026-10-24"),
            ("Europe/Berlin", "2026-10-26T01:30", "2026-10-25"),
            ("America/New_York", "2026-03-08T07:30", "2026-03-07"),
            ("America/New_York", "2026-03-09T06:30", "2026-03-08"),
            ("America/New_York", "2026-11-01T07:30", "2026-10-31"),
            ("America/New_York", "2026-11-02T07:30", "2026-11-01"),
        ]
    ],
]


def with_deadline(**schedule: Any) -> Job:
    return jobs.load(Path("/x"), schedule={"cron": "30 2 * * *", "deadline": "06:00", **schedule})


def utc(moment: str) -> datetime:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC)


@pytest.mark.parametrize(("schedule", "moment", "partition", "deadline"), DEADLINES)
def test_a_partition_is_due_by_the_first_deadline_after_its_last_run(
    schedule: dict[str, Any], moment: str, partition: str, deadline: str
) -> None:
    expected = Deadline(partition, utc(deadline))
    assert latest_deadline(with_deadline(**schedule), utc(moment)) == expected
    assert deadline_of(with_deadline(**schedule), partition) == expected


def test_a_day_of_no_run_or_of_several_has_a_deadline_and_a_job_without_one_is_refused() -> None:
    assert deadline_of(with_deadline(cron="0 2 * * 1"), "2026-11-18").deadline == utc("2026-11-19T06:00")
    assert deadline_of(with_deadline(cron="0 2,14 * * *"), "2026-11-18").deadline == utc("2026-11-20T06:00")
    for job in (with_deadline(deadline=None), jobs.load(Path("/x"))):
        with pytest.raises(JobError, match="deadline"):
            latest_deadline(job, utc("2026-11-19T06:00"))


@pytest.mark.parametrize("cron", ["0 0 * * *", "30 0 * * *", "59 23 * * *", "30 2 * * *"])
def test_each_day_is_taken_by_one_fire_in_every_zone_whenever_its_clock_changes(cron: str) -> None:
    for zone, day in changes():
        found = [datetime.fromisoformat(day) for day in taken(zone, cron, day)]
        days = [found[0] + timedelta(n) for n in range((found[-1] - found[0]).days + 1)]
        assert found == [day for day in days if is_there(day, ZoneInfo(zone))], (zone, day)


def taken(zone: str, cron: str, around: datetime) -> list[str]:
    """The days that a daily schedule takes from three days before a day to three days after it."""
    daily = jobs.load(Path("/x"), schedule={"cron": cron, "timezone": zone, "offset_days": 0})
    assert daily.schedule
    middle = around.replace(tzinfo=UTC)
    fires = cron_times(daily.schedule, middle - timedelta(days=3), middle + timedelta(days=3))
    return [resolve_partition(daily, None, fire, datetime.max) for fire in fires]


@cache
def changes() -> list[tuple[str, datetime]]:
    """A zone and a day for each way in which a clock changed from 1996 to 2037: from what to what, and at what time."""
    found: dict[tuple[timedelta, timedelta, time], tuple[str, datetime]] = {}
    for zone in sorted(available_timezones()):
        for moment, before, after in changes_of(ZoneInfo(zone)):
            local = (moment + before).replace(tzinfo=None)
            found.setdefault((before, after, local.time()), (zone, datetime.combine(local, time())))
    return list(found.values())


def changes_of(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    """Each moment from which a clock of the zone differs, and its offsets before and after it."""
    week, moment, end = timedelta(days=7), datetime(1996, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)
    before = offset(zone, moment)
    while moment < end:
        after = offset(zone, moment + week)
        if before != after:
            low, high = 0, 7 * 24 * 60  # minutes
            while high - low > 1:
                middle = (low + high) // 2
                is_before = offset(zone, moment + timedelta(minutes=middle)) == before
                low, high = (middle, high) if is_before else (low, middle)
            yield moment + timedelta(minutes=high), before, after
        moment, before = moment + week, after


def offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def is_there(day: datetime, zone: ZoneInfo) -> bool:
    """Whether a zone had this day: Samoa left out 30 December 2011."""
    noon = day.replace(hour=12, tzinfo=zone)
    return noon.astimezone(UTC).astimezone(zone).date() == day.date()


@pytest.mark.parametrize("is_held", [True, False])
def test_a_partition_that_another_run_published_meanwhile_is_no_failure_of_a_backfill(is_held: bool) -> None:
    error = PartitionBusy("held") if is_held else OvernightError("broken")
    outcome = Outcome("2026-01-02", "failed", error=error)
    assert is_published(outcome, {"2026-01-02"}) is is_held
    assert not is_published(outcome, {"2026-01-03"})
