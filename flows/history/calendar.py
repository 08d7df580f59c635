"""The calendar of a job without its job file: the partitions that ran, and the missing ones of its schedule."""

import contextlib
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from overnight.flows.history.history import History
from overnight.flows.job.partitions import Partitions
from overnight.flows.job.schedule import Schedule
from overnight.flows.ledger.calendar_view import Month, months
from overnight.flows.ledger.partition_status import PartitionStatus
from overnight.flows.schedule.cron import last_cron_time
from overnight.flows.schedule.partitions import is_taken, parse_day
from overnight.tasks.config.partition_names import time_and_value
from overnight.tasks.config.periods import Unit, number_at, number_of
from overnight.tasks.errors import JobError


def calendar(history: History, now: datetime | None = None) -> list[list[Month]]:
    """Return the lines of the calendar of a job with partitions, the newest first. The newest receipt has its settings.

    Other partitions from the first one, until the last or the newest that the schedule has begun, are missing.
    """
    entries = {line.entry.partition: line.entry for line in history.lines}
    entries.pop("all", None)
    if not entries:
        return []
    with contextlib.suppress(JobError):  # the job had other partitions before, or no receipt shows which it has
        for partition in _due(history, entries.keys(), now or datetime.now(UTC)):
            if partition not in history.directories:  # one that ran may be older than the lines
                entries.setdefault(partition, PartitionStatus(partition, "missing"))
    lines = months([entries[partition] for partition in sorted(entries)])
    return sorted(lines, key=lambda line: line[-1].time, reverse=True)  # the values of a day side by side


def _due(history: History, ran: Collection[str], now: datetime) -> list[str]:
    """Return the partitions from the first to the last that ran, or to the newest that the schedule has begun."""
    settings = _settings_of(history)
    schedule, partitions = _schedule_in(settings), _partitions_in(settings, ran)
    unit = partitions.every
    if unit is None:
        return partitions.named([])
    numbers = [number_of(unit, time_and_value(partition)[0]) for partition in ran]
    last = max(numbers)
    if schedule and max(history.directories.keys() - {"all"}) in ran:
        zone = partitions.timezone or schedule.timezone
        last = max(last, _newest_due(schedule, unit, ZoneInfo(zone), now))
    names = partitions.named(range(min(numbers), last + 1))
    if schedule and not settings.get("partitions"):
        names = [name for name in names if is_taken(schedule, parse_day(name))]
    return names


def _newest_due(schedule: Schedule, unit: Unit, zone: ZoneInfo, now: datetime) -> int:
    """Return the number of the period of the newest run that the schedule has begun; 0 if it has begun none."""
    fire = last_cron_time(schedule, now)
    if fire is None:
        return 0
    return number_at(unit, fire, zone) + (schedule.offset_days if unit == "day" else -1)


def _partitions_in(settings: dict[str, Any], ran: Collection[str]) -> Partitions:
    """Return the partitions of a job: days by default. Instead of a file or folders, the values that ran count."""
    with contextlib.suppress(KeyError, ValueError):  # pydantic raises ValueError
        partitions = Partitions.model_validate(settings["partitions"])
        values = sorted({time_and_value(partition)[1] for partition in ran})
        for column, listed in partitions.values.items():
            if not isinstance(listed, list):
                return partitions.model_copy(update={"values": {column: values}})
        return partitions
    return Partitions(every="day")


def _schedule_in(settings: dict[str, Any]) -> Schedule | None:
    with contextlib.suppress(KeyError, ValueError):
        return Schedule.model_validate(settings["schedule"])
    return None


def _settings_of(history: History) -> dict[str, Any]:
    """Return the settings of the newest receipt, or an empty dictionary."""
    for line in reversed(history.lines):
        if line.receipt.get("settings"):
            return dict(line.receipt["settings"])
    return {}
