"""A job's partitions as a calendar, a row a month and a column a day, and as lists of what is and is not published.

Only the arrangement: `status_view.py` draws it in the terminal, `artifacts.py` in the Prefect UI.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from overnight.flows.ledger.partition_status import STATUSES, PartitionStatus, Status

DAYS = range(1, 32)
FEW_MONTHS = 3
UNPUBLISHED, PUBLISHED = 20, 5  # how many of the newest are told of


@dataclass(frozen=True)
class Month:
    """`name` as YYYY-MM; the statuses of those of its days that are partitions."""

    name: str
    days: dict[int, Status]

    @property
    def is_empty(self) -> bool:
        """Whether nothing became of any of its days."""
        return set(self.days.values()) == {"missing"}


@dataclass(frozen=True)
class PartitionRange:
    """Partitions one after another of which the same is to be said."""

    entries: tuple[PartitionStatus, ...]

    @property
    def name(self) -> str:
        """`2026-11-01 to 2026-11-09 (9)`, or the single partition."""
        first, last = self.entries[0].partition, self.entries[-1].partition
        return first if first == last else f"{first} to {last} ({len(self.entries):,})"


def months(entries: Sequence[PartitionStatus]) -> list[list[Month]]:
    """Oldest first, each alone but for several empty ones in a row."""
    found = [
        Month(name, {int(entry.partition[8:]): entry.status for entry in days})
        for name, days in groupby(entries, lambda entry: entry.partition[:7])
    ]
    lines: list[list[Month]] = []
    for is_empty, group in groupby(found, lambda month: month.is_empty):
        together = list(group)
        lines += [together] if is_empty and len(together) > FEW_MONTHS else [[month] for month in together]
    return lines


def count(entries: Sequence[PartitionStatus]) -> dict[Status, int]:
    """How many partitions there are of each status, all statuses in their order."""
    found = Counter(entry.status for entry in entries)
    return {status: found[status] for status in STATUSES}


def unpublished(entries: Sequence[PartitionStatus]) -> list[PartitionRange]:
    """What is not published, newest first."""
    grouped = groupby(reversed(entries), lambda entry: (entry.status, entry.why, entry.since))
    return [PartitionRange(tuple(group)[::-1]) for (status, *_), group in grouped if status != "published"]


def published(entries: Sequence[PartitionStatus]) -> list[PartitionStatus]:
    """What is published, newest partition first."""
    return [entry for entry in reversed(entries) if entry.status == "published"]


def minute(moment: str | None) -> str:
    """A time of a receipt as people read it, still in UTC."""
    return moment[:16].replace("T", " ") if moment else ""
