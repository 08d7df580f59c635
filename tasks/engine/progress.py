"""How far a run is: looks at its counts over time, and the progress that follows from them.

`progress_of` makes a `Progress` of `Look`s, oldest first. The artifact in Prefect, the terminal and notebooks show this
one value. Rows are source rows of the partition, and those of earlier attempts count as done.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

from overnight.tasks.errors import STREAM_STAGES

RATE_SECONDS = 30.0  # a rate is that of the last 30 seconds
METADATA_CHARACTERS = 490  # Prefect cuts off longer values
QUIET_SECONDS = 5.0  # without a row that moves: then the progress names what the run waits for


@dataclass(frozen=True)
class Look:
    """What is counted of a run after `seconds`. `rows` has the rows that each stage of the job has done."""

    seconds: float
    rows: Mapping[str, int]
    total: int | None = None  # of the partition; None if unknown
    resumed: int = 0
    filtered: int = 0
    quarantined: int = 0
    tokens: int = 0
    cost: float | None = None
    load: Mapping[str, float | None] = field(default_factory=dict)  # a sample of `resources/sampler.py`
    incident: str = ""  # the last one
    wait: str = ""  # what the stream waits for, if no row moves


@dataclass(frozen=True)
class Interval:
    """A number of seconds, and between which two it will be in 80 % of all cases."""

    seconds: float
    low: float
    high: float

    def after(self, seconds: float) -> "Interval":
        """Return what remains of it after these seconds."""
        return Interval(max(self.seconds - seconds, 0.0), max(self.low - seconds, 0.0), max(self.high - seconds, 0.0))


@dataclass(frozen=True)
class StageProgress:
    """The rows that a stage has done, and its rate lately in rows per second; None before it has one."""

    rows: int = 0
    rate: float | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is at one moment."""

    seconds: float = 0.0
    stages: Mapping[str, StageProgress] = field(default_factory=dict)
    total: int | None = None
    resumed: int = 0
    filtered: int = 0
    quarantined: int = 0
    tokens: int = 0
    cost: float | None = None
    load: Mapping[str, float | None] = field(default_factory=dict)
    incident: str = ""
    waits_for: str = ""  # empty while rows move
    time_left: Interval | None = None
    is_complete: bool = False

    def share(self, stage: str) -> float | None:
        """Return the fraction of the rows that a stage has done; None if their number is unknown."""
        if self.is_complete:
            return 1.0
        if self.total is None or stage not in self.stages:
            return None
        return min(self.stages[stage].rows / max(self.total, 1), 1.0)

    def as_texts(self) -> dict[str, str]:
        """Return the fields as JSON texts that are short enough for the metadata of an artifact in Prefect."""
        values = asdict(self)
        for stage in values["stages"].values():
            stage["rate"] = stage["rate"] and round(stage["rate"], 3)
        return {name: _json(value) for name, value in values.items()}


def _json(value: Any) -> str:
    """Return a value as JSON. A text loses its end if it is too long."""
    text = json.dumps(value, ensure_ascii=False)
    while isinstance(value, str) and len(text) > METADATA_CHARACTERS:
        value = value[:-20]
        text = json.dumps(value, ensure_ascii=False)
    return text


def parsed(texts: Mapping[str, str]) -> Progress:
    """Return the progress that `as_texts` has written. Other texts may be beside its own."""
    names = [field.name for field in fields(Progress)]
    values: dict[str, Any] = {name: json.loads(texts[name]) for name in names}
    for name, stage in values["stages"].items():
        values["stages"][name] = StageProgress(**stage)
    if values["time_left"]:
        values["time_left"] = Interval(**values["time_left"])
    return Progress(**values)


def progress_of(looks: Sequence[Look], is_complete: bool = False) -> Progress:
    """Return the progress at the last of `looks`. It needs those of the last `RATE_SECONDS`."""
    last = looks[-1]
    stages = {}
    for stage in filter(last.rows.__contains__, STREAM_STAGES):
        counts = [(look.seconds, look.rows.get(stage, 0)) for look in looks]
        stages[stage] = StageProgress(last.rows[stage], _rate(counts))
    return Progress(
        seconds=last.seconds,
        stages=stages,
        total=last.total,
        resumed=last.resumed,
        filtered=last.filtered,
        quarantined=last.quarantined,
        tokens=last.tokens,
        cost=last.cost,
        load=last.load,
        incident=last.incident,
        waits_for="" if is_complete else _wait(looks),
        is_complete=is_complete,
    )


def _rate(counts: Sequence[tuple[float, int]]) -> float | None:
    """Return the rows per second of a stage in the last `RATE_SECONDS`; None if none of `counts` has further rows."""
    end, rows = counts[-1]
    if rows <= counts[0][1]:
        return None
    start, first = next((seconds, count) for seconds, count in counts if seconds >= end - RATE_SECONDS)
    return max(rows - first, 0) / (end - start) if end > start else None


def _wait(looks: Sequence[Look]) -> str:
    """Return what the run waits for, or an empty string if a row has moved in the last `QUIET_SECONDS`."""
    last = looks[-1]
    movement = looks[0].seconds
    for before, after in pairwise(looks):
        if before.rows != after.rows:
            movement = after.seconds
    return last.wait if last.seconds - movement >= QUIET_SECONDS else ""


def never_less(progress: Progress, before: Progress | None) -> Progress:
    """Return `progress` with no count below that of `before`: an attempt that resumes reads some rows again.

    The stages of a complete run have their own rows, because those before it were estimates.
    """
    if before is None:
        return progress
    stages = dict(progress.stages)
    if not progress.is_complete:
        for stage, now in progress.stages.items():
            former = before.stages.get(stage, StageProgress())
            stages[stage] = StageProgress(max(now.rows, former.rows), now.rate)
    counts = {}
    for name in ("filtered", "quarantined", "tokens"):
        counts[name] = max(getattr(progress, name), getattr(before, name))
    return replace(progress, stages=stages, **counts)
