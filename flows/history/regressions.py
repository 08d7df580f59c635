"""Find what became worse in a publish: slower, costlier, more quarantined, drifted, or a lower agreement with labels.

A figure is a regression if it is worse than that of the publish before, and than the median of the last seven. So a
change is marked where it came, and not again on each later day.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from overnight.flows.history.lines import Line, Remark
from overnight.flows.report.columns import compare_columns
from overnight.flows.report.page import number, share
from overnight.tasks.write.kinds import Checks

SHORTEST = 1.0  # seconds of a stream: the rates and the hours of shorter ones vary too much


@dataclass(frozen=True)
class Measure:
    """A figure of a line that may become worse: how its regression is called, and by how much it may vary."""

    kind: str
    value: Callable[[Line], float | None]
    show: Callable[[float], str]
    falls: bool  # if lower is worse
    factor: float = 1.0
    difference: float = 0.0

    def is_worse(self, now: float, before: float) -> bool:
        if self.falls:
            return now < before / self.factor - self.difference
        return now > before * self.factor + self.difference


def _rate(line: Line) -> float | None:
    return line.rate if _is_measured(line) else None


def _cost(line: Line) -> float | None:
    return line.cost if _is_measured(line) else None


def _is_measured(line: Line) -> bool:
    """Return True if the stream ran long enough."""
    rows = line.receipt.get("rows_in", 0) - line.receipt.get("rows_resumed", 0)
    return bool(line.rate) and rows / (line.rate or 1.0) >= SHORTEST


MEASURES = (
    Measure("slower", _rate, lambda rate: f"{number(rate)} rows/s", True, factor=1.4),
    Measure("costlier", _cost, lambda cost: f"{number(cost)} for 1,000 rows", False, factor=1.4),
    Measure("more quarantined", lambda line: line.quarantined, share, False, difference=0.005),
    Measure("lower agreement", lambda line: line.agreement, share, True, difference=0.02),
)


def regressions(line: Line, past: Sequence[Line]) -> list[Remark]:
    """Return the regressions of a publish. `past` are those before, the newest first."""
    remarks = []
    for measure in MEASURES:
        now, before = measure.value(line), measure.value(past[0])
        if now is None or before is None:
            continue
        usual = median(value for value in map(measure.value, past) if value is not None)
        is_worse = measure.is_worse(now, before) and measure.is_worse(now, usual)
        if is_worse and not (measure.kind == "more quarantined" and _is_chance(line, past[0])):
            remarks.append(Remark(measure.kind, f"{measure.show(now)}, before {measure.show(before)}"))
    return remarks


def find_drift(line: Line, before: Line) -> dict[str, list[Remark]]:
    """Return the drift of each column that drifted since the publish before."""
    columns: dict[str, list[Remark]] = {}
    for column in compare_columns(line.receipt, [before.receipt], _checks_of(line)):
        for drift in column.drift:
            if drift.is_marked:
                text = f"{column.name}: {drift.figure} by {number(drift.distance)}, the bound is {number(drift.bound)}"
                columns.setdefault(column.name, []).append(Remark("drift", text))
    return columns


def _is_chance(line: Line, before: Line) -> bool:
    """Return True if two shares of quarantined rows differ by less than two standard errors."""
    bad_rows, rows = line.receipt["rows_quarantined"], line.receipt["rows_in"]
    bad_before, rows_before = before.receipt["rows_quarantined"], before.receipt["rows_in"]
    mean = (bad_rows + bad_before) / (rows + rows_before)
    error = math.sqrt(mean * (1 - mean) * (1 / rows + 1 / rows_before))
    return bool(bad_rows / rows - bad_before / rows_before < 2 * error)


def _checks_of(line: Line) -> Checks:
    """Return the checks of a receipt, or none if this version cannot read them."""
    try:
        return Checks.model_validate((line.receipt.get("settings") or {}).get("checks") or {})
    except ValueError:
        return Checks()
