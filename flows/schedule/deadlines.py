"""Deadlines: the partition of each deadline, and the time by which it must be published (`schedule.deadline`)."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from overnight.flows.job.model import Job
from overnight.flows.job.schedule import Schedule
from overnight.flows.schedule.cron import cron_times, last_cron_time, next_cron_time
from overnight.flows.schedule.partitions import day_of, due_partitions, newest_offset, parse_day, resolve_partition
from overnight.tasks.config.periods import start_of
from overnight.tasks.errors import JobError


@dataclass(frozen=True)
class Deadline:
    partition: str
    deadline: datetime


def deadline_cron(schedule: Schedule) -> str:
    """Return the cron expression of the daily check at the deadline. Raise `JobError` if there is no deadline."""
    if not schedule.deadline:
        raise JobError('schedule.deadline: expected a time of day such as "06:00", found none; freshness needs it.')
    hour, minute = schedule.deadline.split(":")
    return f"{int(minute)} {int(hour)} * * *"


def latest_deadline(job: Job, moment: datetime) -> Deadline:
    """Return the newest deadline that has passed at `moment`. Raise `JobError` if the job has none, or none passed."""
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


def latest_deadlines(job: Job, moment: datetime) -> list[Deadline]:
    """Return each partition of the newest deadline that has passed at `moment`. Raise `JobError` if none has."""
    latest = latest_deadline(job, moment)
    if job.partitions is None:
        return [latest]
    schedule = scheduled(job)
    fires = cron_times(schedule, latest.deadline - timedelta(days=2), latest.deadline)
    names: dict[str, Deadline] = {}
    for fire in fires:
        if deadline_after(schedule, fire) == latest.deadline:
            for name in due_partitions(job, None, fire, fire):
                names[name] = Deadline(name, latest.deadline)
    return list(names.values())


def deadline_of(job: Job, partition: str, moment: datetime | None = None) -> Deadline:
    """Return a partition's deadline. Without a period, it is the newest deadline before `moment` or now."""
    schedule, periods = scheduled(job), job.periods
    number = periods.number(partition) if periods else None
    if number is None or periods is None or periods.every is None:
        return Deadline(partition, latest_deadline(job, moment or datetime.now(UTC)).deadline)
    if job.partitions:
        taken_at = start_of(periods.every, number - newest_offset(job), periods.zone(job.timezone))
        fire = next_cron_time(schedule, taken_at - timedelta(microseconds=1))
        return Deadline(partition, deadline_after(schedule, fire or taken_at))
    day = parse_day(partition) - job.offset
    midnight = datetime(day.year, day.month, day.day, tzinfo=job.timezone).astimezone(UTC)
    fires = cron_times(schedule, midnight - timedelta(microseconds=1), midnight + timedelta(hours=26))
    last = max((fire for fire in fires if day_of(job, fire) == day), default=midnight)
    return Deadline(partition, deadline_after(schedule, last))


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
