"""The calendar of a job without its job file: the days that ran, and the days of its schedule."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from overnight.flows.history.history import History
from overnight.flows.history.lines import Line
from overnight.flows.job.schedule import Schedule
from overnight.flows.ledger.calendar_view import Month, line_of, months
from overnight.flows.ledger.partition_status import PartitionStatus
from overnight.flows.schedule.cron import last_cron_time
from overnight.flows.schedule.partitions import is_taken


def calendar(history: History, now: datetime | None = None) -> list[list[Month]]:
    """Return the months of a dated job, the newest first. The newest receipt has the schedule.

    Days that did not run are missing. Of other kinds, only partitions that ran are there.
    """
    entries = {line.entry.partition: line.entry for line in history.lines}
    entries.pop("all", None)
    if not entries:
        return []
    if any(line_of(partition)[0] or line_of(partition)[2] != "day" for partition in entries):
        return months(list(entries.values()))[::-1]
    schedule = _schedule_of(history.lines)
    day, last = date.fromisoformat(min(entries)), date.fromisoformat(max(entries))
    newest = max(history.directories.keys() - {"all"})
    if schedule and newest in entries:
        last = max(last, _newest_due(schedule, now or datetime.now(UTC)))
    while day <= last:
        if schedule is None or is_taken(schedule, day):
            entries.setdefault(day.isoformat(), PartitionStatus(day.isoformat(), "missing"))
        day += timedelta(days=1)
    return months([entries[partition] for partition in sorted(entries)])[::-1]


def _newest_due(schedule: Schedule, now: datetime) -> date:
    """Return the day of the newest run that the schedule has begun; `date.min` if it has begun none."""
    fire = last_cron_time(schedule, now)
    if fire is None:
        return date.min
    return fire.astimezone(ZoneInfo(schedule.timezone)).date() + timedelta(days=schedule.offset_days)


def _schedule_of(lines: Sequence[Line]) -> Schedule | None:
    settings = [line.receipt["settings"] for line in lines if line.receipt.get("settings")]
    try:
        return Schedule.model_validate(settings[-1]["schedule"])
    except (IndexError, KeyError, ValueError):  # pydantic raises ValueError
        return None
