"""Which day a run takes: by the schedule's clock, over changes of the clock and leap days."""

import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from overnight.flows.job.model import Job
from overnight.flows.schedule.partitions import check_range, newest_due, partitions_between, resolve_partition
from overnight.tasks.errors import JobError
from tests import jobs

NEVER = datetime.max  # a moment that decides nothing


def job(**schedule: Any) -> Job:
    return jobs.load(Path("/x"), schedule={"cron": "0 2 * * *", **schedule})


@pytest.mark.parametrize(
    ("moment", "schedule", "day"),
    [
        ("2026-11-19T02:00", {"offset_days": 0}, "2026-11-19"),
        ("2026-11-19T02:00", {"offset_days": -7}, "2026-11-12"),
        ("2026-11-19T02:00", {"offset_days": 1}, "2026-11-20"),
        ("2024-03-01T02:00", {}, "2024-02-29"),
        ("2026-11-19T11:00", {"timezone": "Pacific/Auckland"}, "2026-11-19"),
        # Midnight in Berlin on the days on which its clock changes.
        ("2026-03-29T21:59", {"timezone": "Europe/Berlin"}, "2026-03-28"),
        ("2026-03-29T22:00", {"timezone": "Europe/Berlin"}, "2026-03-29"),
        ("2026-10-25T22:59", {"timezone": "Europe/Berlin"}, "2026-10-24"),
        ("2026-10-25T23:00", {"timezone": "Europe/Berlin"}, "2026-10-25"),
    ],
)
def test_a_day_is_the_schedule_s_day_moved_by_its_offset_from_wherever_the_moment_is_written(
    moment: str, schedule: dict[str, Any], day: str
) -> None:
    scheduled = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    for zone in ("UTC", "Asia/Tokyo"):
        assert resolve_partition(job(**schedule), None, scheduled.astimezone(ZoneInfo(zone)), NEVER) == day


def test_the_scheduled_time_decides_and_now_only_without_one_and_a_naive_time_is_utc() -> None:
    scheduled, now = datetime(2026, 11, 19, 2, tzinfo=UTC), datetime(2026, 11, 21, 0, 30)
    assert resolve_partition(job(), None, scheduled, now) == "2026-11-18"
    assert resolve_partition(job(), "", None, now) == "2026-11-20"
    unscheduled = jobs.load(Path("/x"))
    assert resolve_partition(unscheduled, "", None, now) == newest_due(unscheduled, now).isoformat() == "2026-11-20"


def test_a_given_day_is_taken_as_it_is() -> None:
    assert resolve_partition(job(), " 2024-02-29 ", None, NEVER) == "2024-02-29"


@pytest.mark.parametrize(
    "day",
    ["2023-02-29", "2026-11-31", "2026-1-1", "20261119", "19.11.2026", "all", "2026-11-19T00:00", "\u0662026-11-19"],
)
def test_what_is_no_day_is_refused(day: str) -> None:
    with pytest.raises(JobError, match=day):
        resolve_partition(job(), day, None, NEVER)


def test_an_undated_job_has_one_partition() -> None:
    undated = jobs.load(Path("/x"), source={"kind": "csv", "path": "/in"}, schedule=jobs.DAILY)
    for given in (None, "", "all"):
        assert resolve_partition(undated, given, None, NEVER) == "all"
    with pytest.raises(JobError, match=r"expected all.* found 2026-11-19"):
        resolve_partition(undated, "2026-11-19", None, NEVER)
    with pytest.raises(JobError, match="whose only partition is all"):
        partitions_between(undated, date(2026, 1, 1), date(2026, 1, 2))


def test_a_range_has_the_days_that_its_schedule_takes_and_ends_on_its_start_or_later() -> None:
    """2026-01-02 is a Friday, and the run of Monday takes Sunday."""
    mondays = job(cron="0 2 * * 1")
    assert partitions_between(mondays, date(2026, 1, 4), date(2026, 1, 18)) == [
        "2026-01-04",
        "2026-01-11",
        "2026-01-18",
    ]
    assert partitions_between(jobs.load(Path("/x")), date(2024, 2, 29), date(2024, 3, 1)) == [
        "2024-02-29",
        "2024-03-01",
    ]
    start = time.process_time()
    assert len(partitions_between(jobs.load(Path("/x")), date(1926, 1, 1), date(2025, 12, 31))) == 36525
    assert time.process_time() - start < 1, "100 years of days without a schedule"
    check_range(date(2026, 1, 2), date(2026, 1, 2))
    with pytest.raises(JobError, match="2026-01-02 to 2026-01-01"):
        check_range(date(2026, 1, 2), date(2026, 1, 1))
