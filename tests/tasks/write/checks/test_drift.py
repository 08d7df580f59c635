"""How far columns are from an earlier receipt: the distances, and what they are held against."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.state.run import Run, write_json
from overnight.tasks.write.checks.column_statistics import Record, describe, summary
from overnight.tasks.write.checks.drift import DriftResult, compare
from overnight.tasks.write.checks.previous_receipt import LOOK_BACK, previous_receipt
from overnight.tasks.write.checks.settings import Checks
from tests.tasks.runs import make_run


def record(values: Any) -> Record:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return summary(describe(pa.table({"x": array})), ["x"])["x"]


def drift(now: Any, before: Any, bound: Any) -> DriftResult:
    previous = {"partition": "D", "columns": {"x": record(before)}} if before is not None else None
    return compare(Checks(drift={"x": bound}), {"x": record(now)}, previous)


@pytest.mark.parametrize(
    ("now", "before", "bound", "measured"),
    [
        ([3.0, 5.0], [1.0, 3.0], 2, {"mean": 2.0}),  # in deviations of before; exactly the bound is still allowed
        ([1.0, 3.0, 200.0, -196.0], [1.0, 3.0], 0.1, {"mean": 0.0}),
        ([0.1, 0.3 - 0.2], [0.1, 0.1], 0, {"mean": 0.0}),  # rounding is no distance from a constant
        ([1, 3], [1, 3], 0.1, {"mean": 0.0}),
        ([1, 3], [3, 1], {"mean": 0, "shares": 0}, {"mean": 0.0, "shares": 0.0}),
        ([True, False], [True, True, False, False], 0.1, {"shares": 0.0}),
        (["a"] * 3 + ["b"], ["a", "b"], 0.25, {"shares": 0.25}),  # the part that has moved
        (["c"], ["a", "b"], 3, {"shares": 1.0}),
    ],
)
def test_a_mere_number_bounds_the_mean_of_numbers_and_the_shares_of_the_rest(
    now: list, before: list, bound: Any, measured: dict[str, float]
):
    found = drift(now, before, bound)
    assert (found.measured, found.failures, found.notes) == ({"x": measured}, [], [])


@pytest.mark.parametrize(
    ("now", "before", "bound", "fact"),
    [
        ([0.9, 1.1], [0.4, 0.6], 2, "found 5 (mean 1; of D: 0.5, standard deviation 0.1)"),
        ([0.5, 0.6], [0.5, 0.5], 99, "found inf"),
        (pa.nulls(2, pa.float64()), [0.4, 0.6], 99, "found inf (mean no finite number"),
        (["cat"] * 3 + ["dog"], ["cat", "dog"], 0.2, "found 0.25; the most changed: 'cat' 50.0% -> 75.0%, 'dog' 50.0%"),
        (pa.nulls(2), ["cat"], 0.9, "'cat' 100.0% -> 0.0%"),
        (["a"] * 3 + ["b"], ["a", "b"], 0.2499999, "within 0.25 of those of D"),
        (["a"], None, {"mean": 1}, "a mean needs numbers, and the column is string"),
        ([[1.0]], None, 0.1, "shares need text, truth values or whole numbers, and the column is list<item: double>"),
        (["a" * 65], None, 0.1, "has more or longer ones"),
        (list(range(1001)), None, {"shares": 0.1}, "at most 1000 values"),
    ],
)
def test_what_is_too_far_or_can_never_be_measured_fails_with_both_sides(now: Any, before: Any, bound: Any, fact: str):
    found = drift(now, before, bound)
    [failure] = found.failures
    assert failure.startswith("checks.drift.x: ")
    assert fact in failure
    assert (found.measured, found.notes) == ({}, [])


@pytest.mark.parametrize(
    ("now", "before", "why"),
    [
        ([1.0, 2.0], None, "no receipt"),
        ([1.0], [math.nan], "the receipt of D has no mean of it"),
        ([1.0], ["was text"], "the receipt of D has no mean of it"),
        (["a"], pa.nulls(2), "the receipt of D has no shares of it"),
    ],
)
def test_a_past_without_the_column_s_figures_passes_with_a_note(now: Any, before: Any, why: str):
    found = drift(now, before, 0.1)
    assert (found.measured, found.failures) == ({}, [])
    assert found.notes == [f"checks.drift.x: nothing to compare with, {why}; the check passes."]


def leave_receipt(run: Run, **more: Any) -> None:
    write_json(run.ledger / "receipt.json", {"job": run.job, "partition": run.partition, **more})


def found(run: Run) -> Any:
    return (previous_receipt(run) or {}).get("partition")


def test_a_partition_is_compared_with_the_newest_earlier_one_that_is_published(tmp_path: Path):
    runs = {day: make_run(tmp_path, f"2026-01-{day:02d}") for day in range(1, 8)}
    undated = make_run(tmp_path, "all")
    leave_receipt(runs[5])
    assert found(undated) is None
    assert found(runs[5]) == "2026-01-05"  # its own last one, for there is none before
    for day in (1, 2, 7):
        leave_receipt(runs[day])
    leave_receipt(runs[4], job="another")
    write_json(runs[3].ledger / "failure.json", {"status": "failed"})
    assert found(runs[5]) == "2026-01-02"
    assert found(make_run(tmp_path, "2026-01-05", limit_rows=10)) is None
    leave_receipt(undated)
    assert found(undated) == "all"


def test_the_search_for_the_past_ends(tmp_path: Path):
    days = [f"2026-{1 + n // 28:02d}-{1 + n % 28:02d}" for n in range(LOOK_BACK + 2)]
    runs = [make_run(f"memory://{tmp_path.name}", day) for day in days]
    leave_receipt(runs[0])
    for run in runs[1:-1]:
        write_json(run.ledger / "failure.json", {})
    assert found(runs[LOOK_BACK]) == days[0]
    assert found(runs[LOOK_BACK + 1]) is None
