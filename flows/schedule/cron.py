"""Compute the times at which a job's schedule fires, with the code of Prefect's own scheduler (3.9).

If the clock skips a scheduled time, the job fires an hour later: 02:30 becomes 03:30. If an hour comes twice, the job
fires in the first. Prefect 3.8 fired an hour earlier instead, so client and server must both run 3.9.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from overnight.flows.job.schedule import Schedule

AT_ONCE = 500  # the scheduler's function returns at most 1,000
LONGEST_GAP = timedelta(days=8 * 366)  # between two leap days, around a century without one


def cron_times(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    """Return every time after `after` and up to `until` at which the schedule fires, in UTC, ascending."""
    from overnight.flows.runs.prefect_internals import cron_dates  # imports Prefect, which some commands do not need

    start = after
    times: set[datetime] = set()
    while True:
        dates = cron_dates(schedule.cron, schedule.timezone, AT_ONCE, start, until)
        plain = [datetime.fromtimestamp(date.timestamp(), UTC) for date in dates]  # Prefect's type has other methods
        times.update(date for date in plain if after < date <= until)
        if len(dates) < AT_ONCE:
            return sorted(times)
        start = plain[-1] + timedelta(seconds=1)


def last_cron_time(schedule: Schedule, before: datetime) -> datetime | None:
    """Return the newest time before `before` at which the schedule fires, or None if it did not fire for years."""
    for gap in _gaps():
        if times := cron_times(schedule, before - gap, before - timedelta(microseconds=1)):
            return times[-1]
    return None


def next_cron_time(schedule: Schedule, after: datetime) -> datetime | None:
    """Return the first time after `after` at which the schedule fires, or None if it does not fire for years."""
    for gap in _gaps():
        if times := cron_times(schedule, after, after + gap):
            return times[0]
    return None


def _gaps() -> Iterator[timedelta]:
    """Yield growing spans of time to search, the last one longer than the longest gap of a schedule."""
    gap = timedelta(days=1)
    while gap <= LONGEST_GAP:
        yield gap
        gap *= 8
    yield gap
