"""Which day a run takes: by the schedule's clock, over changes of the clock and leap days."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from overnight.flows.job.model import Job
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


# Where a day's fire is on the night that the clock springs: at midnight, and a minute before it.


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
