"""Compare each output column with the previous partition and with the mean of the last seven, from receipts alone.

Drift is measured as `checks.drift` measures it: by the means, and by the shares of values. A column without a bound is
marked beyond the usual bounds below.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from overnight.tasks.write.in_process import mean_shift, share_distance
from overnight.tasks.write.kinds import Checks

USUAL_MEAN, USUAL_SHARES = 0.5, 0.1  # bounds for the mark of a column that the job does not bound
VALUES_SHOWN = 12
FIGURES = ("mean", "standard_deviation", "min", "max")
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure of a column: now, and in the earlier partitions, the newest first. None is unknown.

    Its kind is `number`, `share` of the rows, or `value`: the share of one of the most frequent values, its name.
    """

    name: str
    now: float | None
    past: Sequence[float | None] = ()
    kind: str = "number"

    @property
    def before(self) -> float | None:
        return next(iter(self.past), None)

    @property
    def mean(self) -> float | None:
        present = [value for value in self.past if value is not None]
        return fmean(present) if present else None


@dataclass(frozen=True)
class Drift:
    """A distance from the previous partition, with its bound. `is_checked` if the bound is that of `checks.drift`."""

    figure: str
    distance: float
    bound: float
    is_checked: bool

    @property
    def is_marked(self) -> bool:
        return self.distance > self.bound


@dataclass(frozen=True)
class Bin:
    """A bin of a histogram: its edges and its rows. Heights are fractions of the highest bar of both partitions."""

    low: float
    high: float
    rows: int
    before: int | None
    height: float
    height_before: float


@dataclass
class Column:
    """An output column beside the same column of earlier partitions."""

    name: str
    type: str
    figures: list[Figure]
    more_values: int = 0
    drift: list[Drift] = field(default_factory=list)
    bins: list[Bin] = field(default_factory=list)

    @property
    def has_drift(self) -> bool:
        return any(drift.is_marked for drift in self.drift)

    @property
    def largest_share(self) -> float:
        values = [figure for figure in self.figures if figure.kind == "value"]
        return max([share for value in values for share in (value.now, value.before) if share], default=1.0)


def compare_columns(receipt: Record, earlier: Sequence[Record], checks: Checks) -> list[Column]:
    """Return the columns of a receipt; those with drift first. `earlier` are receipts, the newest first."""
    columns = []
    for name, record in (receipt.get("columns") or {}).items():
        past = [(past_receipt.get("columns") or {}).get(name) or {} for past_receipt in earlier]
        columns.append(_column(name, record, past, checks))
    return sorted(columns, key=lambda column: not column.has_drift)


def as_json(column: Column) -> dict[str, Any]:
    """Return a column of two results as JSON values: `a` is the earlier result, `b` the one that is compared."""
    figures = {figure.name: {"kind": figure.kind, "a": figure.before, "b": figure.now} for figure in column.figures}
    drift = [vars(drift) | {"is_marked": drift.is_marked} for drift in column.drift]
    return {"name": column.name, "type": column.type, "figures": figures, "drift": drift}


def bins_of(edges: np.ndarray, counts: np.ndarray, counts_before: np.ndarray | None) -> list[Bin]:
    """Return the bins of a histogram, without the empty ones at both ends."""
    before = np.zeros_like(counts) if counts_before is None else counts_before
    shares, shares_before = counts / max(counts.sum(), 1), before / max(before.sum(), 1)
    highest = max(shares.max(), shares_before.max()) or 1.0
    bins = []
    for number in np.flatnonzero(np.maximum.accumulate(counts + before)):
        rows_before = None if counts_before is None else int(before[number])
        heights = float(shares[number] / highest), float(shares_before[number] / highest)
        bins.append(Bin(float(edges[number]), float(edges[number + 1]), int(counts[number]), rows_before, *heights))
    while bins and not (bins[-1].rows or bins[-1].before):
        bins.pop()
    return bins


def _column(name: str, now: Record, past: Sequence[Record], checks: Checks) -> Column:
    before: Record = past[0] if past else {}
    classes = list((now.get("classes") or {}) | (before.get("classes") or {}))
    if len(classes) > VALUES_SHOWN and now.get("mean") is not None:
        classes = []  # a histogram shows the numbers
    figures = []
    for value in classes[:VALUES_SHOWN]:
        figures.append(Figure(value, _share(value, now), [_share(value, record) for record in past], "value"))
    figures.append(Figure("without a value", _missing(now), [*map(_missing, past)], "share"))
    for figure in FIGURES:
        if now.get(figure) is not None:
            figures.append(Figure(figure.replace("_", " "), now[figure], [record.get(figure) for record in past]))
    more = max(len(classes) - VALUES_SHOWN, 0)
    return Column(name, str(now.get("type", "")), figures, more, _drift(name, now, before, checks))


def _missing(record: Record) -> float | None:
    """Return the share of rows that are null or NaN."""
    if not record.get("rows"):
        return None
    return float((record.get("nulls", 0) + record.get("nan", 0)) / record["rows"])


def _share(value: str, record: Record) -> float | None:
    classes = record.get("classes")
    if not classes:
        return None
    return float(classes.get(value, 0) / sum(classes.values()))


def _drift(name: str, now: Record, before: Record, checks: Checks) -> list[Drift]:
    is_checked = name in checks.drift
    bounds = checks.drift_bounds(name, dict(now)) if is_checked else _usual_bounds(now, before)
    drift = []
    for figure, bound in bounds.items():
        measure = share_distance if figure == "shares" else mean_shift
        distance = measure(dict(now), dict(before))
        if distance is not None:
            drift.append(Drift(figure, distance, bound, is_checked))
    return drift


def _usual_bounds(now: Record, before: Record) -> dict[str, float]:
    """Return the bound on the mean of numbers, or on the shares of other values, of a column that no check names."""
    # Means of few rows differ by chance, by three standard errors at most. Shares differ more with more values and with
    # fewer rows: at most this much on average.
    if now.get("mean") is not None:
        counts = (record.get("rows", 0) - record.get("nulls", 0) for record in (now, before))
        return {"mean": max(USUAL_MEAN, 3 * math.sqrt(sum(1 / max(count, 1) for count in counts)))}
    classes, classes_before = now.get("classes"), before.get("classes")
    if not classes or not classes_before:
        return {}
    chance = len(classes | classes_before) * (1 / sum(classes.values()) + 1 / sum(classes_before.values()))
    return {"shares": USUAL_SHARES + math.sqrt(chance / (2 * math.pi))}
