"""Arrange the stages of a run on the axis of its time: when each ran, its rate, its work and its incidents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """A stage: its bar as fractions of the run, its work in worker seconds, its rows, and its number of incidents.

    `start` is None if the receipt has no times of the stage.
    """

    name: str
    rows: int
    size: int  # bytes
    seconds: float
    share: float  # of the worker seconds of all stages
    incidents: int
    start: float | None = None
    width: float = 0.0
    rows_per_second: float | None = None


@dataclass(frozen=True)
class Timeline:
    """The stages of a run, its seconds, and the seconds until the first stage began and after the last one ended."""

    stages: list[Stage]
    seconds: float
    seconds_before: float | None = None
    seconds_after: float | None = None
    attempts: tuple[str, ...] = ()  # the moments at which the attempts of the generation began


def arrange(record: Record, attempts: Iterable[str] = ()) -> Timeline:
    """Return the timeline of a receipt. `attempts` are the names of the generation's attempts."""
    begin, end = _moment(record.get("started_at")), _moment(record.get("finished_at"))
    seconds = 0.0
    if begin and end:
        seconds = (end - begin).total_seconds()
    measures: Mapping[str, Record] = record.get("stages") or {}
    work = sum(stage.get("seconds") or 0.0 for stage in measures.values()) or 1.0
    incidents: dict[str, int] = {}
    for incident in record.get("incidents") or ():
        owner = str(incident.get("stage"))
        incidents[owner] = incidents.get(owner, 0) + int(incident.get("times", 1))
    stages, starts, ends = [], [], []
    for name, stage in measures.items():
        first, last = _moment(stage.get("started_at")), _moment(stage.get("finished_at"))
        bar: dict[str, Any] = {}
        if begin and first and last and seconds:
            duration = max((last - first).total_seconds(), 0.001)
            starts.append((first - begin).total_seconds())
            ends.append((last - begin).total_seconds())
            bar = {
                "start": min(max(starts[-1] / seconds, 0.0), 1.0),
                "width": min(duration / seconds, 1.0),
                "rows_per_second": stage.get("rows", 0) / duration,
            }
        amounts = int(stage.get("rows") or 0), int(stage.get("bytes") or 0), float(stage.get("seconds") or 0.0)
        stages.append(Stage(name, *amounts, amounts[2] / work, incidents.get(name, 0), **bar))
    before, after = None, None
    if starts:
        before, after = min(starts), max(seconds - max(ends), 0.0)
    return Timeline(stages, seconds, before, after, tuple(map(_attempt, attempts)))


def _attempt(name: str) -> str:
    """Return the moment at which an attempt began, in UTC, from its name."""
    try:
        return datetime.strptime(name[:15], "%Y%m%dT%H%M%S").strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return name


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
