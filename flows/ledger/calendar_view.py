"""Arrange a job's partitions as a calendar, one row per month and one column per day, and as lists by status.

`status_view.py` draws the calendar in the terminal, `artifacts.py` in the Prefect UI, and `flows/history/` in HTML.
Each shows a status by its letter and by a colour.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from overnight.flows.ledger.partition_status import STATUSES, PartitionStatus, Status

DAYS = range(1, 32)
FEW_MONTHS = 3
LETTERS: dict[Status, str] = {"published": "P", "missing": "M", "failed": "F", "stale": "S", "running": "R"}
UNPUBLISHED, PUBLISHED = 20, 5  # the number of newest partitions that each list shows


@dataclass(frozen=True)
class Month:
    """A month: its name as YYYY-MM, and the status of each day that is a partition."""

    name: str
    days: dict[int, Status]

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
    """Return lists of months, the oldest first. A list usually holds one month.

    More than `FEW_MONTHS` consecutive months whose partitions are all missing share one list.
    """
    calendar = []
    for name, group in groupby(entries, lambda entry: entry.partition[:7]):
        days = {int(entry.partition[8:]): entry.status for entry in group}
        calendar.append(Month(name, days))
    lines: list[list[Month]] = []
    for is_empty, stretch in groupby(calendar, lambda month: month.is_empty):
        neighbours = list(stretch)
        if is_empty and len(neighbours) > FEW_MONTHS:
            lines.append(neighbours)
        else:
            lines += [[month] for month in neighbours]
    return lines


def count(entries: Sequence[PartitionStatus]) -> dict[Status, int]:
    """Return the number of partitions of each status, also if it is 0, in the order of `STATUSES`."""
    counts = Counter(entry.status for entry in entries)
    return {status: counts[status] for status in STATUSES}


def unpublished(entries: Sequence[PartitionStatus]) -> list[PartitionRange]:
    """Return the ranges of partitions whose status is not `published`, newest first."""
    groups = groupby(reversed(entries), lambda entry: (entry.status, entry.why, entry.since))
    return [PartitionRange(tuple(group)[::-1]) for (status, *_), group in groups if status != "published"]


def published(entries: Sequence[PartitionStatus]) -> list[PartitionStatus]:
    """Return the published partitions, newest first."""
    return [entry for entry in reversed(entries) if entry.status == "published"]


def minute(moment: str | None) -> str:
    """Return a receipt's time as `YYYY-MM-DD HH:MM` in UTC, or an empty string for None."""
    return moment[:16].replace("T", " ") if moment else ""
