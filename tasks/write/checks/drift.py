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
    """The result of a comparison of columns with an earlier receipt.

    `measured` maps a column to its distances within the bounds: `mean`, `shares` or both. `failures` has a sentence for
    each distance that is too large or cannot be measured. `notes` has one for each column that the earlier receipt
    lacks.
    """

    measured: dict[str, dict[str, float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare(checks: Checks, columns: dict[str, Record], previous: dict[str, Any] | None) -> DriftResult:
    """Measure how far the columns named in `checks.drift` are from those of an earlier receipt, and check the bounds.

    `columns` maps the columns to publish to their statistics; a named column that is not among them is skipped.
    `previous` is the earlier receipt. If it is None, every column passes, with a note.
    """
    found = DriftResult()
    for name in checks.drift:
        if name not in columns:
            continue
        now, before = columns[name], (previous or {}).get("columns", {}).get(name, {})
        for figure, bound in checks.drift_bounds(name, now).items():
            setting = f"checks.drift.{name}"
            if reason := _not_measurable(now, figure):
                found.failures.append(f"{setting}: {reason}")
                continue
            distance = (mean_shift if figure == "mean" else share_distance)(now, before)
            if distance is None:
                past = f"the receipt of {previous['partition']} has no {figure} of it" if previous else "no receipt"
                found.notes.append(f"{setting}: nothing to compare with, {past}; the check passes.")
            elif distance > bound:
                day = previous["partition"] if previous else ""
                found.failures.append(f"{setting}: {_too_far(figure, bound, distance, now, before, day)}")
            else:
                found.measured.setdefault(name, {})[figure] = round(distance, 6)
    return found


def mean_shift(now: Record, before: Record) -> float | None:
    """Return how many earlier standard deviations a column's mean is from its earlier mean: Glass's delta, unsigned.

    `now` and `before` are the column's statistics in this run and in the earlier receipt. If the earlier column did not
    vary, the result is infinite for every other mean; rounding errors count as equal. Return None if `before` lacks the
    mean or the deviation, and infinity if only `now` has no mean.
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
    """Return how far the shares of a column's values are from the earlier shares, from 0 to 1.

    Equal shares have the distance 0, and columns without a common value 1. A share is the fraction of the rows, without
    nulls, that have a value. The distance is the total variation distance: half the sum of |share - share before|
    (Levin and Peres, "Markov Chains and Mixing Times", section 4.1).

    `now` and `before` are the column's statistics in this run and in the earlier receipt. Return None if `before` has
    no rows by value (`classes`), and 1 if only `now` has none.
    """
    past, present = before.get("classes"), now.get("classes")
    if not past:
        return None
    if not present:
        return 1.0
    past_rows, rows = sum(past.values()), sum(present.values())
    return sum(abs(present.get(c, 0) / rows - past.get(c, 0) / past_rows) for c in past | present) / 2


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
    return (
        f"expected the shares of values within {bound:g} of those of {day} (total variation), found {distance:.3g}; "
        f"the most changed: {_most_changed(now.get('classes') or {}, before['classes'])}."
    )


def _most_changed(now: dict[str, int], before: dict[str, int]) -> str:
    rows, past_rows = sum(now.values()) or 1, sum(before.values())
    shares = {c: (before.get(c, 0) / past_rows, now.get(c, 0) / rows) for c in before | now}
    order = sorted(shares, key=lambda c: -abs(shares[c][0] - shares[c][1]))
    return ", ".join(f"{c!r} {shares[c][0]:.1%} -> {shares[c][1]:.1%}" for c in order[:3])
