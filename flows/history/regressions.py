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

# Seconds of a stream. The start and single blocks decide the rates and the hours of shorter ones.
SHORTEST_MARKED, SHORTEST_COMPARED = 60.0, 10.0
Counts = Callable[[Line], int]


@dataclass(frozen=True)
class Measure:
    """A figure of a line that may become worse: how its regression is called, and by how much it may vary."""

    kind: str
    value: Callable[[Line], float | None]
    show: Callable[[float], str]
    falls: bool  # if lower is worse
    factor: float = 1.0
    difference: float = 0.0
    rows: Counts | None = None  # of a share, which varies by chance

    def is_worse(self, now: float, before: float) -> bool:
        if self.falls:
            return now < before / self.factor - self.difference
        return now > before * self.factor + self.difference


def _rate(line: Line) -> float | None:
    return line.rate if _stream_seconds(line) >= SHORTEST_COMPARED else None


def _cost(line: Line) -> float | None:
    return line.cost if _stream_seconds(line) >= SHORTEST_COMPARED else None


def _stream_seconds(line: Line) -> float:
    rows = line.receipt.get("rows_in", 0) - line.receipt.get("rows_resumed", 0)
    return float(rows / line.rate) if line.rate else 0.0


def _rows_in(line: Line) -> int:
    return int(line.receipt["rows_in"])


def _rows_with_label(line: Line) -> int:
    """Return the rows with a label and a prediction. The facts of an earlier version have no such number."""
    return int(line.facts.get("rows_with_label") or line.receipt["rows_out"])


MEASURES = (
    Measure("slower", _rate, lambda rate: f"{number(rate)} rows/s", True, factor=1.4),
    Measure("costlier", _cost, lambda cost: f"{number(cost)} for 1,000 rows", False, factor=1.4),
    Measure("more quarantined", lambda line: line.quarantined, share, False, difference=0.005, rows=_rows_in),
    Measure("lower agreement", lambda line: line.agreement, share, True, difference=0.02, rows=_rows_with_label),
)


def regressions(line: Line, past: Sequence[Line]) -> list[Remark]:
    """Return the regressions of a publish. `past` are those before, the newest first."""
    remarks = []
    for measure in MEASURES:
        now, before = measure.value(line), measure.value(past[0])
        is_short = measure.rows is None and _stream_seconds(line) < SHORTEST_MARKED
        if now is None or before is None or is_short:
            continue
        usual = median(value for value in map(measure.value, past) if value is not None)
        is_worse = measure.is_worse(now, before) and measure.is_worse(now, usual)
        if is_worse and not (measure.rows and _is_chance(now, measure.rows(line), before, measure.rows(past[0]))):
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


def _is_chance(now: float, rows: int, before: float, rows_before: int) -> bool:
    """Return True for less than three standard errors: two would mark one line in 44 by chance."""
    mean = (now * rows + before * rows_before) / (rows + rows_before)
    return abs(now - before) < 3 * math.sqrt(mean * (1 - mean) * (1 / rows + 1 / rows_before))


def _checks_of(line: Line) -> Checks:
    """Return the checks of a receipt, or none if this version cannot read them."""
    try:
        return Checks.model_validate((line.receipt.get("settings") or {}).get("checks") or {})
    except ValueError:
        return Checks()
