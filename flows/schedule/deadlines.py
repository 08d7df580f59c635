"""Deadlines: the partition of each deadline, and the time by which it must be published (`schedule.deadline`)."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from overnight.flows.job.model import Job
from overnight.flows.job.schedule import Schedule
from overnight.flows.schedule.cron import cron_times, last_cron_time
from overnight.flows.schedule.partitions import day_of, parse_day, resolve_partition
from overnight.tasks.errors import JobError


@dataclass(frozen=True)
class Deadline:
    """A partition and the time by which it must be published."""

    partition: str
    deadline: datetime


def deadline_cron(schedule: Schedule) -> str:
    """Return the cron expression of the daily check at the deadline, in the schedule's time zone.

    Raise `JobError` if the schedule has no deadline.
    """
    if not schedule.deadline:
        raise JobError('schedule.deadline: expected a time of day such as "06:00", found none; freshness needs it.')
    hour, minute = schedule.deadline.split(":")
    return f"{int(minute)} {int(hour)} * * *"


def latest_deadline(job: Job, moment: datetime) -> Deadline:
    """Return the newest deadline that has passed at `moment`, with its partition.

    Raise `JobError` if the job has no deadline, or none has passed yet.
    """
    schedule = scheduled(job)
    fire = last_cron_time(schedule, moment)
    while fire and (deadline := deadline_after(schedule, fire)) > moment:
        fire = last_cron_time(schedule, fire)
    if fire is None:
        raise JobError(
            f"schedule.cron: expected a partition of the job {job.name} that was due before {moment}, found none. "
            "Name a partition, or correct the schedule."
        )
    return Deadline(resolve_partition(job, None, fire, fire), deadline)


def deadline_of(job: Job, partition: str) -> Deadline:
    """Return the deadline of a partition. Raise `JobError` if the job has no deadline.

    It is the first deadline after the last time at which the schedule fires for the partition.
    """
    schedule = scheduled(job)
    day = parse_day(partition) - job.offset
    midnight = datetime(day.year, day.month, day.day, tzinfo=job.timezone).astimezone(UTC)
    before = midnight - timedelta(microseconds=1)
    around = cron_times(schedule, before, midnight + timedelta(hours=26))
    on_the_day = [fire for fire in around if day_of(job, fire) == day]
    return Deadline(partition, deadline_after(schedule, on_the_day[-1] if on_the_day else midnight))


def scheduled(job: Job) -> Schedule:
    """Return the job's schedule. Raise `JobError` if the job has no schedule, or the schedule has no deadline."""
    if job.schedule is None:
        raise JobError(f"schedule: expected one with a deadline, found none in the job {job.name}.")
    deadline_cron(job.schedule)
    return job.schedule


def deadline_after(schedule: Schedule, fire: datetime) -> datetime:
    """Return the first deadline after `fire`, a time at which the schedule fires.

    The code of Prefect's scheduler computes it, because that scheduler also starts the check at the deadline.
    """
    daily = Schedule(cron=deadline_cron(schedule), timezone=schedule.timezone)
    return cron_times(daily, fire, fire + timedelta(days=2))[0]
