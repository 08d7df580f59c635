"""Which day a run takes: by the schedule's clock, over changes of the clock and leap days."""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest

from overnight.flows.job.model import Job
from overnight.flows.schedule.cron import cron_times
from overnight.flows.schedule.partitions import resolve_partition
from overnight.tasks.errors import JobError


def job(path: str = "s3://b/{partition}", **schedule) -> Job:
    return Job.model_validate(
        {
            "name": "a",
            "source": {"kind": "csv", "path": path},
            "sink": {"kind": "parquet", "path": "s3://b/out"},
            "schedule": {"cron": "0 2 * * *", **schedule} if schedule else None,
        }
    )


def resolve(now: str, zone: str = "UTC", **schedule) -> str:
    return resolve_partition(job(timezone=zone, **schedule), None, datetime.fromisoformat(now), datetime.max)


@pytest.mark.parametrize(
    ("now", "zone", "expected"),
    [
        ("2026-11-19T02:00:00+00:00", "UTC", "2026-11-18"),
        ("2024-03-01T02:00:00+00:00", "UTC", "2024-02-29"),
        ("2026-01-01T00:00:00+00:00", "UTC", "2025-12-31"),
        # Berlin springs forward on 2026-03-29 at 01:00 UTC and falls back on 2026-10-25 at 01:00 UTC.
        ("2026-03-28T22:59:00+00:00", "Europe/Berlin", "2026-03-27"),
        ("2026-03-28T23:00:00+00:00", "Europe/Berlin", "2026-03-28"),
        ("2026-03-29T21:59:00+00:00", "Europe/Berlin", "2026-03-28"),
        ("2026-03-29T22:00:00+00:00", "Europe/Berlin", "2026-03-29"),
        ("2026-10-25T00:30:00+00:00", "Europe/Berlin", "2026-10-24"),
        ("2026-10-25T01:30:00+00:00", "Europe/Berlin", "2026-10-24"),
        ("2026-10-25T22:59:00+00:00", "Europe/Berlin", "2026-10-24"),
        ("2026-10-25T23:00:00+00:00", "Europe/Berlin", "2026-10-25"),
        # New York, 2026-03-08 and 2026-11-01; midnight there is 05:00 or 04:00 UTC.
        ("2026-03-08T04:59:00+00:00", "America/New_York", "2026-03-06"),
        ("2026-03-09T03:59:00+00:00", "America/New_York", "2026-03-07"),
        ("2026-03-09T04:00:00+00:00", "America/New_York", "2026-03-08"),
        ("2026-11-02T04:59:00+00:00", "America/New_York", "2026-10-31"),
        ("2026-11-02T05:00:00+00:00", "America/New_York", "2026-11-01"),
        ("2026-11-19T11:00:00+00:00", "Pacific/Auckland", "2026-11-19"),
    ],
)
def test_a_day_is_the_schedules_day(now, zone, expected):
    assert resolve(now, zone) == expected


# Where a day's fire is on the night that the clock springs: at midnight, and a minute before it.
SPRINGS = [
    ("Africa/Cairo", "0 0 * * *", "2026-04-24"),
    ("Asia/Beirut", "0 0 * * *", "2026-03-29"),
    ("America/Havana", "30 0 * * *", "2026-03-08"),
    ("America/Nuuk", "59 23 * * *", "2026-03-28"),
    ("Asia/Pyongyang", "59 23 * * *", "2018-05-04"),
]


@pytest.mark.parametrize(("zone", "cron", "day"), SPRINGS)
def test_a_fire_that_the_clock_springs_over_takes_the_day_that_cron_means(zone, cron, day):
    assert taken(zone, cron, datetime.fromisoformat(day)).count(day) == 1


@pytest.mark.parametrize("cron", ["0 0 * * *", "59 23 * * *", "30 2 * * *"])
def test_each_day_is_taken_by_one_fire_in_every_zone_whenever_its_clock_changes(cron):
    for zone, day in changes():
        found = [datetime.fromisoformat(day) for day in taken(zone, cron, day)]
        days = [found[0] + timedelta(n) for n in range((found[-1] - found[0]).days + 1)]
        assert found == [day for day in days if is_there(day, ZoneInfo(zone))], (zone, day)


def taken(zone: str, cron: str, around: datetime) -> list[str]:
    """The days that a daily schedule takes from three days before a day to three days after it."""
    daily = job(cron=cron, timezone=zone, offset_days=0)
    middle = around.replace(tzinfo=UTC)
    found = cron_times(daily.schedule, middle - timedelta(days=3), middle + timedelta(days=3))
    return [resolve_partition(daily, None, fire, datetime.max) for fire in found]


@cache
def changes() -> list[tuple[str, datetime]]:
    """A zone and a day for each way in which a clock changed from 1996 to 2037: from what to what, and at what time."""
    found = {}
    for zone in sorted(available_timezones()):
        for moment, before, after in changes_of(ZoneInfo(zone)):
            local = (moment + before).replace(tzinfo=None)
            found.setdefault((before, after, local.time()), (zone, datetime.combine(local, time())))
    return list(found.values())


def changes_of(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    week, moment, end = timedelta(days=7), datetime(1996, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)
    while moment < end:
        before, after = offset(zone, moment), offset(zone, moment + week)
        if before != after:
            low, high = 0, 7 * 24 * 60  # minutes
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (
                    (middle, high) if offset(zone, moment + timedelta(minutes=middle)) == before else (low, middle)
                )
            yield moment + timedelta(minutes=high), before, after
        moment += week


def offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def is_there(day: datetime, zone: ZoneInfo) -> bool:
    """Whether a zone had this day: Samoa left out 30 December 2011."""
    noon = day.replace(hour=12, tzinfo=zone)
    return noon.astimezone(UTC).astimezone(zone).date() == day.date()


@pytest.mark.parametrize(("offset", "expected"), [(0, "2026-11-19"), (-7, "2026-11-12"), (1, "2026-11-20")])
def test_the_offset_moves_by_days(offset, expected):
    assert resolve("2026-11-19T02:00:00+00:00", offset_days=offset) == expected


def test_the_scheduled_time_decides_and_now_only_without_one():
    scheduled, now = datetime(2026, 11, 19, 2, tzinfo=UTC), datetime(2026, 11, 21, 9, tzinfo=UTC)
    assert resolve_partition(job(timezone="UTC"), None, scheduled, now) == "2026-11-18"
    assert resolve_partition(job(timezone="UTC"), None, None, now) == "2026-11-20"


def test_the_same_moment_in_another_zone_is_the_same_day():
    moment = datetime(2026, 11, 19, 23, 30, tzinfo=UTC)
    elsewhere = moment.astimezone(ZoneInfo("Asia/Tokyo"))
    assert resolve_partition(job(), None, moment, moment) == resolve_partition(job(), None, elsewhere, elsewhere)


def test_without_a_schedule_it_is_yesterday_in_utc_and_naive_times_are_utc():
    assert resolve_partition(job(), "", None, datetime(2026, 11, 19, 0, 30)) == "2026-11-18"


def test_a_given_day_is_taken_as_it_is():
    assert resolve_partition(job(timezone="UTC"), " 2024-02-29 ", None, datetime.max) == "2024-02-29"


@pytest.mark.parametrize(
    "day",
    [
        "2023-02-29",
        "2026-11-31",
        "2026-1-1",
        "20261119",
        "19.11.2026",
        "all",
        "2026-11-19T00:00",
        "2026-W01-1",
        "\u0662026-11-19",
    ],
)
def test_what_is_no_day_is_refused(day):
    with pytest.raises(JobError, match=r"partition: expected a day .*YYYY-MM-DD, found"):
        resolve_partition(job(), day, None, datetime.max)


def test_an_undated_job_has_one_partition():
    undated = job("s3://b/in", timezone="UTC")
    assert not undated.is_dated
    for given in (None, "", "all"):
        assert resolve_partition(undated, given, None, datetime.max) == "all"
    with pytest.raises(
        JobError, match=r"expected all, because the source of the job a has no {partition}; found 2026-11-19"
    ):
        resolve_partition(undated, "2026-11-19", None, datetime.max)
