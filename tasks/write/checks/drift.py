"""Measure how far columns are from the columns of an earlier receipt, and check the distances against their bounds.

There are two distances between records of `column_statistics.py`: of the means, and of the shares of values. A figure
that the earlier receipt lacks cannot be compared. It passes, with a note.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from overnight.tasks.write.checks.column_statistics import CLASS_BYTES, MOST_CLASSES, Record
from overnight.tasks.write.checks.settings import Checks

ROUNDING = 1e-9


@dataclass
class DriftResult:
    """The distances (`mean`, `shares`) within the bounds by column, a sentence for each failure, and notes."""

    measured: dict[str, dict[str, float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare(checks: Checks, columns: dict[str, Record], previous: dict[str, Any] | None) -> DriftResult:
    """Measure how far the columns named in `checks.drift` are from those of an earlier receipt, and check the bounds.

    A named column that is not in `columns` is skipped. Without an earlier receipt every column passes, with a note.
    """
    result, receipt = DriftResult(), previous or {}
    for name in checks.drift:
        if name not in columns:
            continue
        now, before, setting = columns[name], receipt.get("columns", {}).get(name, {}), f"checks.drift.{name}"
        for figure, bound in checks.drift_bounds(name, now).items():
            if reason := _not_measurable(now, figure):
                result.failures.append(f"{setting}: {reason}")
                continue
            distance = (mean_shift if figure == "mean" else share_distance)(now, before)
            if distance is None:
                past = f"the receipt of {receipt['partition']} has no {figure} of it" if receipt else "no receipt"
                result.notes.append(f"{setting}: nothing to compare with, {past}; the check passes.")
            elif distance > bound:
                reason = _too_far(figure, bound, distance, now, before, receipt["partition"])
                result.failures.append(f"{setting}: {reason}")
            else:
                result.measured.setdefault(name, {})[figure] = round(distance, 6)
    return result


def mean_shift(now: Record, before: Record) -> float | None:
    """Return how many earlier standard deviations a column's mean is from its earlier mean: Glass's delta, unsigned.

    It is infinite for another mean than that of a column that did not vary, None without an earlier mean.
    """
    if before.get("mean") is None or before["standard_deviation"] is None:
        return None
    if now.get("mean") is None:
        return math.inf
    difference = abs(now["mean"] - before["mean"])
    if difference <= ROUNDING * max(abs(now["mean"]), abs(before["mean"])):
        return 0.0
    return float(difference / before["standard_deviation"]) if before["standard_deviation"] else math.inf


def share_distance(now: Record, before: Record) -> float | None:
    """Return half the sum of |share - share before| over a column's values; None without earlier `classes`.

    This is the total variation distance (Levin and Peres, "Markov Chains and Mixing Times", section 4.1), from 0 to 1.
    """
    if not before.get("classes"):
        return None
    if not now.get("classes"):
        return 1.0
    return sum(abs(share - earlier) for earlier, share in _shares(now, before).values()) / 2


def _shares(now: Record, before: Record) -> dict[str, tuple[float, float]]:
    """Return the earlier share and the share of the rows, without nulls, that have each value."""
    present, past = now.get("classes") or {}, before["classes"]
    rows, past_rows = sum(present.values()) or 1, sum(past.values())
    return {value: (past.get(value, 0) / past_rows, present.get(value, 0) / rows) for value in past | present}


def _not_measurable(record: Record, figure: str) -> str | None:
    """Return why the figure does not exist for such a column, or None."""
    if record["nulls"] == record["rows"]:
        return None
    if figure == "mean":
        return None if "mean" in record else f"a mean needs numbers, and the column is {record['type']}."
    if "classes" not in record:
        return f"shares need text, truth values or whole numbers, and the column is {record['type']}."
    if record["classes"] is None:
        return (
            f"shares need at most {MOST_CLASSES} values of at most {CLASS_BYTES} bytes; the column has more or "
            "longer ones. Remove it from checks.drift."
        )
    return None


def _too_far(figure: str, bound: float, distance: float, now: Record, before: Record, day: str) -> str:
    if figure == "mean":
        mean = "no finite number" if now.get("mean") is None else f"{now['mean']:.6g}"
        past = f"{before['mean']:.6g}, standard deviation {before['standard_deviation']:.6g}"
        return (
            f"expected the mean within {bound:g} standard deviations of that of {day}, found {distance:.3g} "
            f"(mean {mean}; of {day}: {past})."
        )
    shares = sorted(_shares(now, before).items(), key=lambda item: -abs(item[1][0] - item[1][1]))
    changes = [f"{value!r} {earlier:.1%} -> {share:.1%}" for value, (earlier, share) in shares[:3]]
    return (
        f"expected the shares of values within {bound:g} of those of {day} (total variation), found {distance:.3g}; "
        f"the most changed: {', '.join(changes)}."
    )
