"""Compute the partition of a run: a day as `YYYY-MM-DD`, or `all` if the source has no `{partition}`."""

import re
from datetime import UTC, date, datetime, time, timedelta, timezone

from cronsim import CronSim

from overnight.flows.job.model import Job
from overnight.flows.job.schedule import Schedule
from overnight.tasks.errors import JobError


def resolve_partition(job: Job, partition: str | None, scheduled: datetime | None, now: datetime) -> str:
    """Return the partition that the user named, or the day of the scheduled time (or of now) moved by `offset_days`."""
    partition = (partition or "").strip()
    if not job.is_dated:
        if partition in ("", "all"):
            return "all"
        raise JobError(
            f"partition: expected all, because the source of the job {job.name} has no {{partition}}; "
            f"found {partition}."
        )
    if partition:
        return parse_day(partition).isoformat()
    moment = scheduled or now
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (day_of(job, moment) + job.offset).isoformat()


def day_of(job: Job, moment: datetime) -> date:
    """Return the day of a moment in the job's time zone. For a scheduled time, return the day that its cron means.

    If the clock skips a scheduled time, Prefect fires an hour later: 23:59 becomes 00:59 on the next day.
    """
    local = datetime.fromtimestamp(moment.timestamp(), job.timezone)  # Prefect's type has other methods
    if job.schedule and not _names(job.schedule.cron, local):
        # A moment that cron does not name is also read with the UTC offset of the day before.
        earlier_clock = local.astimezone(timezone((local - timedelta(days=1)).utcoffset() or timedelta()))
        if _names(job.schedule.cron, earlier_clock):
            return earlier_clock.date()
    return local.date()


def _names(cron: str, local: datetime) -> bool:
    wall = local.replace(tzinfo=None)
    return next(CronSim(cron, wall - timedelta(minutes=1))) == wall


def newest_due(job: Job, now: datetime) -> date:
    """Return the newest day that is due at `now`, which a run without `--partition` takes. Later days are to come."""
    return parse_day(resolve_partition(job, None, None, now))


def partitions_between(job: Job, start: date, end: date) -> list[str]:
    """Return the partitions from `start` to `end`, both included, without days that the job's schedule never takes."""
    if not job.is_dated:
        raise JobError(
            f"expected a job with {{partition}} in its source, found {job.name}, whose only partition is all."
        )
    days = [start + timedelta(number) for number in range((end - start).days + 1)]
    return [day.isoformat() for day in days if job.schedule is None or is_taken(job.schedule, day)]


def is_taken(schedule: Schedule, partition: date) -> bool:
    """Return True if cron fires on the day that takes this partition. Only months and weekdays decide this."""
    day = partition - timedelta(days=schedule.offset_days)
    before = datetime.combine(day, time()) - timedelta(minutes=1)
    return next(CronSim(schedule.cron, before)).date() == day


def check_range(start: date, end: date) -> None:
    if end < start:
        raise JobError(f"expected an end that is not before the start, found {start} to {end}.")


def parse_day(text: str) -> date:
    """Return the day that is written as `YYYY-MM-DD`. Raise `JobError` for other text."""
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return date.fromisoformat(text)
    except ValueError as error:
        raise JobError(f"partition: expected a day of the calendar as YYYY-MM-DD, found {text} ({error}).") from None
    raise JobError(f"partition: expected a day as YYYY-MM-DD, found {text}.")
