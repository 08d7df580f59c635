"""Arrange a run on the axis of its time: its stages with their rates and incidents, its attempts, and its load."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

Record = Mapping[str, Any]
# Columns of `samples` in a receipt -> their names and units on the page.
LOAD = {
    "cpus_busy": ("CPUs busy", "share"),
    "memory_bytes": ("memory in use", "size"),
    "object_store_bytes": ("object store", "size"),
    "devices_busy": ("devices busy", "share"),
    "device_memory_bytes": ("device memory", "size"),
}


@dataclass
class Stage:
    """A stage: its rows, bytes and worker seconds, and its bar and its incidents as fractions of the run.

    `start` is None if the receipt has no times of the stage.
    """

    name: str
    rows: int
    size: int  # bytes
    seconds: float
    share: float  # of the worker seconds of all stages
    incidents: int
    marks: list[float]  # the first times of its incidents
    start: float | None = None
    width: float = 0.0
    rows_per_second: float | None = None


@dataclass(frozen=True)
class Curve:
    """A measure over time: points as fractions of the run and of the top, and the largest value in its unit."""

    name: str
    unit: str  # number, share or size
    points: list[tuple[float, float]]
    largest: float


@dataclass(frozen=True)
class Attempt:
    """An attempt of the generation: the text of its beginning, and its place if it is in the time of this run."""

    moment: str
    mark: float | None = None


@dataclass
class Timeline:
    """The axis of a run, from its beginning, with its stages, attempts and curves."""

    begin: datetime | None
    seconds: float
    stages: list[Stage] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    @property
    def seconds_before(self) -> float | None:
        """Return the seconds until the first stage began, or None if no stage has times."""
        starts = [stage.start for stage in self.stages if stage.start is not None]
        return min(starts) * self.seconds if starts else None

    @property
    def seconds_after(self) -> float:
        """Return the seconds after the last stage ended."""
        ends = [stage.start + stage.width for stage in self.stages if stage.start is not None]
        return (1 - max(ends, default=1.0)) * self.seconds

    def place(self, moment: datetime | None) -> float | None:
        """Return a moment as a fraction of the run, or None if it is outside of it."""
        if not self.begin or not moment or not self.seconds:
            return None
        fraction = (moment - self.begin).total_seconds() / self.seconds
        return fraction if 0 <= fraction <= 1 else None


def arrange(record: Record, attempts: Iterable[str] = ()) -> Timeline:
    """Return the timeline of a receipt. `attempts` are the names of the generation's attempts."""
    begin, end = _moment(record.get("started_at")), _moment(record.get("finished_at"))
    timeline = Timeline(begin, (end - begin).total_seconds() if begin and end else 0.0)
    measures: Mapping[str, Record] = record.get("stages") or {}
    work = sum(stage.get("seconds") or 0.0 for stage in measures.values()) or 1.0
    counts, marks = Counter[str](), dict[str, list[float]]()
    for incident in record.get("incidents") or ():
        stage, place = str(incident.get("stage")), timeline.place(_moment(incident.get("at")))
        counts[stage] += int(incident.get("times", 1))
        if place is not None:
            marks.setdefault(stage, []).append(place)
    for name, measure in measures.items():
        rows, size, seconds = (measure.get(figure) or 0 for figure in ("rows", "bytes", "seconds"))
        if not (rows or seconds or measure.get("started_at")):  # the job has no such stage, or it has not begun
            continue
        bar = Stage(name, rows, size, seconds, seconds / work, counts[name], marks.get(name, []))
        _set_times(bar, measure, timeline)
        timeline.stages.append(bar)
    timeline.attempts = [_attempt(name, timeline) for name in attempts]
    timeline.curves = list(_curves(record.get("samples") or {}, timeline))
    return timeline


def _set_times(stage: Stage, measure: Record, timeline: Timeline) -> None:
    first, last = _moment(measure.get("started_at")), _moment(measure.get("finished_at"))
    if timeline.begin and first and last and timeline.seconds:
        duration = max((last - first).total_seconds(), 0.001)
        stage.start = min(max((first - timeline.begin).total_seconds() / timeline.seconds, 0.0), 1.0)
        stage.width = min(duration / timeline.seconds, 1.0 - stage.start)
        stage.rows_per_second = stage.rows / duration


def _curves(samples: Record, timeline: Timeline) -> Iterator[Curve]:
    """Yield the rate of the last stage with rows, and the load of the machine, from the samples of a receipt."""
    start = timeline.place(_moment(samples.get("started_at")))
    seconds = np.array(samples.get("seconds") or (), float)
    if start is None or len(seconds) < 2:
        return
    places = np.minimum(start + seconds / timeline.seconds, 1.0)
    rows = [values for name, values in samples.items() if name.startswith("rows_") and any(values)]
    if rows:
        rates = np.diff(np.array(rows[-1], float)) / np.maximum(np.diff(seconds), 0.001)
        yield _curve("rows/s", "number", places[1:], np.maximum(rates, 0.0))
    for name, (title, unit) in LOAD.items():
        if samples.get(name):
            yield _curve(title, unit, places, np.array(samples[name], float))


def _curve(name: str, unit: str, places: np.ndarray, values: np.ndarray) -> Curve:
    places, values = places[: len(values)], values[: len(places)]
    is_known = np.isfinite(places) & np.isfinite(values)
    largest = float(values[is_known].max(initial=0.0))
    heights = np.minimum(values / (1.0 if unit == "share" else largest or 1.0), 1.0)
    points = zip(places[is_known].tolist(), heights[is_known].tolist(), strict=True)
    return Curve(name, unit, list(points), largest)


def _attempt(name: str, timeline: Timeline) -> Attempt:
    """Return an attempt by its name, which begins with its moment in UTC."""
    try:
        moment = datetime.strptime(name[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return Attempt(name)
    return Attempt(f"{moment:%Y-%m-%d %H:%M:%S}", timeline.place(moment))


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
