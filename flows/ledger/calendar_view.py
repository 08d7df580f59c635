"""Arrange a job's partitions as a calendar, and as lists by status.

A line of the calendar is a month of days, a day of hours, a year of weeks or months, or a value.
`status_view.py` draws the calendar in the terminal, `artifacts.py` in the Prefect UI, and `flows/history/` in HTML.
Each shows a status by its letter and by a colour.
"""

from calendar import monthcalendar
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from overnight.flows.ledger.partition_status import STATUSES, PartitionStatus, Status
from overnight.tasks.config.partition_names import TIME, time_and_value

FEW_MONTHS = 3
LETTERS: dict[Status, str] = {"published": "P", "missing": "M", "failed": "F", "stale": "S", "running": "R"}
UNPUBLISHED, PUBLISHED = 20, 5  # the number of newest partitions that each list shows


@dataclass(frozen=True)
class Unit:
    """What a cell of a line is, and a line. `cells` numbers all cells; `width` of them are side by side."""

    cells: range
    cell: str
    line: str
    width: int = 7


UNITS = {
    "hour": Unit(range(24), "hours", "days", 8),
    "day": Unit(range(1, 32), "days", "months"),
    "week": Unit(range(1, 54), "weeks", "years"),
    "month": Unit(range(1, 13), "months", "years", 6),
    "value": Unit(range(1, 2), "values", "values"),
}


@dataclass(frozen=True)
class Month:
    """A line of the calendar: its name, such as YYYY-MM, and the status of each cell that is a partition."""

    name: str
    days: dict[int, Status]
    unit: Unit = UNITS["day"]
    partitions: dict[int, str] = field(default_factory=dict)  # by the cell

    @property
    def value(self) -> str:
        """Return the value of the line's partitions; empty for times alone."""
        return self.name if self.unit is UNITS["value"] else self.name.rpartition(" ")[0]

    @property
    def time(self) -> str:
        """Return the time of the line, such as YYYY-MM; empty for a value alone."""
        return "" if self.unit is UNITS["value"] else self.name.rpartition(" ")[2]

    @property
    def weeks(self) -> list[list[int]]:
        """Return the numbers of the cells in lines; 0 for a day of another month."""
        if self.unit is UNITS["day"]:
            return monthcalendar(int(self.name[-7:-3]), int(self.name[-2:]))
        cells, width = list(self.unit.cells), self.unit.width
        return [cells[start : start + width] for start in range(0, len(cells), width)]

    @property
    def is_empty(self) -> bool:
        """Return True if all partitions of the month are missing."""
        return set(self.days.values()) == {"missing"}


@dataclass(frozen=True)
class PartitionRange:
    """Consecutive partitions with the same status, reasons and time."""

    entries: tuple[PartitionStatus, ...]

    @property
    def name(self) -> str:
        """Return text such as `2026-11-01 to 2026-11-09 (9)`, or the name of the only partition."""
        first, last = self.entries[0].partition, self.entries[-1].partition
        return first if first == last else f"{first} to {last} ({len(self.entries):,})"


def months(entries: Sequence[PartitionStatus]) -> list[list[Month]]:
    """Return lists of lines, the oldest first. A list usually holds one line.

    More than `FEW_MONTHS` consecutive lines whose partitions are all missing share one list.
    """
    calendar = []
    for (_, name, unit), group in groupby(sorted(entries, key=by_value), lambda entry: line_of(entry.partition)):
        days, partitions = dict[int, Status](), dict[int, str]()
        for entry in group:
            cell = _cell(entry.partition)
            days[cell], partitions[cell] = entry.status, entry.partition
        calendar.append(Month(name, days, UNITS[unit], partitions))
    lines: list[list[Month]] = []
    for (is_empty, _), stretch in groupby(calendar, lambda month: (month.is_empty, month.value)):
        neighbours = list(stretch)
        if is_empty and len(neighbours) > FEW_MONTHS:
            lines.append(neighbours)
        else:
            lines += [[month] for month in neighbours]
    return lines


def by_value(entry: PartitionStatus) -> tuple[str, str]:
    """Return the key by which partitions are sorted, so that those of one value are together."""
    return time_and_value(entry.partition)[1], entry.partition


def line_of(partition: str) -> tuple[str, str, str]:
    """Return the value of a partition, the name of its line, and the unit of the line's cells."""
    time, value = time_and_value(partition)
    if match := TIME.fullmatch(time):
        unit, name = "day", time[:7]
        if match["hour"]:
            unit, name = "hour", match["date"]
        elif match["week"] or match["month"]:
            unit, name = "week" if match["week"] else "month", time[:4]
        return value, f"{value} {name}".strip(), unit
    return value, value, "value"


def _cell(partition: str) -> int:
    """Return the number of a partition's cell in its line."""
    time, _ = time_and_value(partition)
    return int(time[-2:]) if time else 1


def count(entries: Sequence[PartitionStatus]) -> dict[Status, int]:
    """Return the number of partitions of each status, also if it is 0, in the order of `STATUSES`."""
    counts = Counter(entry.status for entry in entries)
    return {status: counts[status] for status in STATUSES}


def unpublished(entries: Sequence[PartitionStatus]) -> list[PartitionRange]:
    """Return the ranges of partitions whose status is not `published`, newest first."""
    lines = sorted(entries, key=by_value, reverse=True)
    groups = groupby(lines, lambda entry: (entry.status, entry.why, entry.since, by_value(entry)[0]))
    ranges = [PartitionRange(tuple(group)[::-1]) for (status, *_), group in groups if status != "published"]
    return sorted(ranges, key=lambda stretch: time_and_value(stretch.entries[-1].partition)[0], reverse=True)


def published(entries: Sequence[PartitionStatus]) -> list[PartitionStatus]:
    """Return the published partitions, newest first."""
    return [entry for entry in reversed(entries) if entry.status == "published"]


def minute(moment: str | None) -> str:
    """Return a receipt's time as `YYYY-MM-DD HH:MM` in UTC, or an empty string for None."""
    return moment[:16].replace("T", " ") if moment else ""
