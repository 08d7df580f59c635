"""By when which partition is to be published, over changes of the clock."""

from datetime import UTC, datetime
from typing import Any

import pytest

from overnight.flows.job.model import Job
from overnight.flows.schedule.deadlines import deadline_of, latest_deadline
from overnight.tasks.errors import JobError


def job(cron: str = "30 2 * * *", **schedule: Any) -> Job:
    return Job.model_validate(
        {
            "name": "a",
            "source": {"kind": "csv", "path": "s3://b/{partition}"},
            "sink": {"kind": "parquet", "path": "s3://b/out"},
            "schedule": {"cron": cron, "deadline": "06:00", **schedule},
        }
    )


def due(moment: str, **schedule: Any) -> tuple[str, str]:
    found = latest_deadline(job(**schedule), datetime.fromisoformat(moment).replace(tzinfo=UTC))
    return found.partition, f"{found.deadline.astimezone(UTC):%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("zone", "moment", "partition"),
    [
        # The check at 02:30, an hour that is not there, runs when the scheduler runs it, and finds its own day.
        ("Europe/Berlin", "2026-03-29T01:30", "2026-03-28"),
        ("Europe/Berlin", "2026-03-30T00:30", "2026-03-29"),
        ("Europe/Berlin", "2026-10-25T00:30", "2026-10-24"),
        ("Europe/Berlin", "2026-10-26T01:30", "2026-10-25"),
        ("America/New_York", "2026-03-08T07:30", "2026-03-07"),
        ("America/New_York", "2026-03-09T06:30", "2026-03-08"),
        ("America/New_York", "2026-11-01T07:30", "2026-10-31"),
        ("America/New_York", "2026-11-02T07:30", "2026-11-01"),
    ],
)
def test_no_day_is_missed_when_the_clock_changes(zone, moment, partition):
    expected = (partition, moment[5:].replace("T", " "))
    assert due(moment, cron="15 0 * * *", timezone=zone, deadline="02:30") == expected


def test_the_deadline_of_a_named_partition_follows_its_own_run():
    found = deadline_of(job(timezone="America/New_York"), "2026-11-18")
    assert found.deadline.isoformat() == "2026-11-19T11:00:00+00:00"
    twice = deadline_of(job(cron="0 2,14 * * *"), "2026-11-18")
    assert twice.deadline.isoformat() == "2026-11-20T06:00:00+00:00"
    unscheduled = deadline_of(job(cron="0 2 * * 1"), "2026-11-18")
    assert unscheduled.deadline.isoformat() == "2026-11-19T06:00:00+00:00"


def test_a_job_without_a_deadline_says_what_to_set():
    with pytest.raises(JobError, match=r"schedule.deadline: expected a time of day"):
        latest_deadline(job(deadline=None), datetime(2026, 11, 19, tzinfo=UTC))
