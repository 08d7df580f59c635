"""Compute the partition of a run: of `partitions`, a day as `YYYY-MM-DD`, or `all` if the source has no `{partition}`.

A job without `partitions` takes the day of each scheduled time. One with `partitions` takes each period once: the first
run after its end takes it, with each value of now. So a daily run of hours takes 24.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone

from cronsim import CronSim

from overnight.flows.job.model import Job
from overnight.flows.job.partitions import Partitions
from overnight.flows.job.schedule import Schedule
from overnight.flows.schedule.cron import last_cron_time
from overnight.tasks.config.partition_names import partition_values
from overnight.tasks.config.periods import first_day, number_at, number_of_day
from overnight.tasks.errors import JobError, shortened

NAMED = 5  # partitions in a message


def resolve_partition(job: Job, partition: str | None, scheduled: datetime | None, now: datetime) -> str:
    """Return the partition that the user named, or the first one that is due."""
    return due_partitions(job, partition, scheduled, now)[0]


def only_partition(job: Job, partition: str | None, now: datetime) -> str:
    """Return the partition that the user named, or the one that is due. Refuse several."""
    names = due_partitions(job, partition, None, now)
    if len(names) > 1:
        raise JobError(
            f"partition: expected one of {shortened(names, NAMED)}, which are all due; found none. Name one, or run "
            "all with overnight backfill."
        )
    return names[0]


def due_partitions(job: Job, partition: str | None, scheduled: datetime | None, now: datetime) -> list[str]:
    """Return the partition that the user named, or the partitions that are due, at least one."""
    partition = (partition or "").strip()
    moment = scheduled or now
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if job.partitions:
        if partition:
            return [job.partitions.checked(partition)]
        return _newly_due(job, job.partitions, scheduled, moment)
    if not job.is_dated:
        if partition in ("", "all"):
            return ["all"]
        raise JobError(
            f"partition: expected all, because the source of the job {job.name} has no {{partition}}; "
            f"found {partition}."
        )
    if partition:
        return [parse_day(partition).isoformat()]
    return [(day_of(job, moment) + job.offset).isoformat()]


def _newly_due(job: Job, partitions: Partitions, scheduled: datetime | None, moment: datetime) -> list[str]:
    """Return what is due at a moment; at a scheduled time, all that ended since the last one."""
    last = newest_number(job, moment) or 0
    first = last
    if scheduled and job.schedule and (fire := last_cron_time(job.schedule, moment)):
        first = min(last, (newest_number(job, fire) or 0) + 1)
    names = partitions.named(range(first, last + 1))
    if not names:
        raise JobError(f"partition: expected {partitions.start} or later (partitions.start); none is due yet.")
    return names


def newest_number(job: Job, moment: datetime) -> int | None:
    """Return the number of the newest period that is due at a moment, or None."""
    if job.partitions is None:
        day = resolve_partition(job, None, None, moment)
        return None if day == "all" else parse_day(day).toordinal()
    unit, zone = job.partitions.every, job.partitions.zone(job.timezone)
    if unit is None:
        return None
    return number_at(unit, moment, zone) + newest_offset(job)


def newest_offset(job: Job) -> int:
    """Return the number of periods from that of a moment to the newest one that is due."""
    return job.times.offset_days if job.partitions and job.partitions.every == "day" else -1


def newest_due(job: Job, now: datetime) -> date | None:
    """Return the newest day that is due, or the first one of the newest period, or None."""
    number, periods = newest_number(job, now), job.periods
    if number is None or periods is None or periods.every is None:
        return None
    return first_day(periods.every, number)


def is_due(job: Job, partition: str, now: datetime) -> bool:
    """Return True if a partition is due at `now`, or was before. One without a period always is."""
    number, newest = job.periods.number(partition) if job.periods else None, newest_number(job, now)
    return number is None or newest is None or number <= newest


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


def partitions_between(job: Job, start: date, end: date) -> list[str]:
    """Return the partitions with a day from `start` to `end` that a run takes some time."""
    if job.partitions:
        return job.partitions.named(job.partitions.numbers_in(start, end))
    if not job.is_dated:
        raise JobError(
            f"expected a job with {{partition}} in its source, found {job.name}, whose only partition is all."
        )
    days = [start + timedelta(number) for number in range((end - start).days + 1)]
    return [day.isoformat() for day in days if job.schedule is None or is_taken(job.schedule, day)]


def partitions_before(job: Job, partition: str, days: int) -> list[str]:
    """Return the partitions of the periods before that of `partition`, back to the one that is `days` earlier."""
    periods = job.periods
    day = periods.first_day(partition) if periods else None
    if periods is None or day is None or periods.every is None:
        return []
    number = periods.number(partition) or 0
    shift = number - number_of_day(periods.every, day)  # of an hour: those of its day
    return periods.named(range(number_of_day(periods.every, day - timedelta(days)) + shift, number))


def chosen(columns: str, partitions: Sequence[str], where: Sequence[str]) -> list[str]:
    """Return the partitions that meet all conditions, such as `region=eu` or `region=eu,us`.

    Raise `JobError` for another column, or for a value that no partition has.
    """
    result = list(partitions)
    for condition in where:
        column, _, texts = condition.partition("=")
        if column not in columns.split(",") or not texts:
            raise JobError(f"where: expected COLUMN=VALUE with one of the columns {columns}, found {condition}.")
        values = {name: str(partition_values(columns, name).get(column)) for name in partitions}
        if unknown := sorted(set(texts.split(",")).difference(values.values())) if values else []:
            examples = shortened(sorted(set(values.values())), NAMED)
            raise JobError(f"where: expected values of {column} such as {examples}, found {unknown[0]}.")
        result = [name for name in result if values[name] in texts.split(",")]
    return result


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
