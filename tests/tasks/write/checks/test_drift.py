"""How far columns are from an earlier receipt: the distances, and what they are held against."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.state.run import Run, write_json
from overnight.tasks.write.checks.column_statistics import Record, describe, summary
from overnight.tasks.write.checks.drift import DriftResult, compare, mean_shift, share_distance
from overnight.tasks.write.checks.previous_receipt import LOOK_BACK, previous_receipt
from overnight.tasks.write.checks.settings import Checks
from tests.tasks.runs import make_run


def record(values: Any) -> Record:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return summary(describe(pa.table({"x": array})), ["x"])["x"]


def drift(now: Any, before: Any, bound: Any) -> DriftResult:
    return compare(Checks(drift={"x": bound}), {"x": record(now)}, {"partition": "D", "columns": {"x": record(before)}})


@pytest.mark.parametrize(
    ("now", "before", "shift"),
    [
        ([3.0, 5.0], [1.0, 3.0], 2.0),
        ([1.0, 3.0, 200.0, -196.0], [1.0, 3.0], 0.0),
        ([0.5, 0.6], [0.5, 0.5], math.inf),  # from a constant, any other mean is infinitely far,
        ([0.1, 0.3 - 0.2], [0.1, 0.1], 0.0),  # but rounding is not
        ([math.nan, None], [1.0, 2.0], math.inf),
        ([1.0], [math.nan], None),
    ],
)
def test_a_mean_s_shift_is_measured_in_deviations_of_before(now: list, before: list, shift: float | None):
    assert mean_shift(record(now), record(before)) == shift


@pytest.mark.parametrize(
    ("now", "before", "distance"),
    [
        (["a", "b"], ["a", "a", "b", "b"], 0.0),
        (["a", "a", "a", "b"], ["a", "b"], 0.25),
        (["c"], ["a", "b"], 1.0),
        (pa.nulls(2, pa.string()), ["a"], 1.0),
        (["a"], pa.nulls(2), None),
    ],
)
def test_the_distance_of_shares_is_the_part_that_has_moved(now: Any, before: Any, distance: float | None):
    assert share_distance(record(now), record(before)) == distance


LABELS = st.lists(st.sampled_from("abcd"), min_size=1)


@given(LABELS, LABELS, LABELS)
def test_the_distance_of_shares_is_a_metric_between_0_and_1(one: list, two: list, three: list):
    a, b, c = record(one), record(two), record(three)
    ab, bc, ac = (share_distance(*pair) or 0 for pair in ((a, b), (b, c), (a, c)))
    assert 0 <= ab <= 1 + 1e-12
    assert ab == pytest.approx(share_distance(b, a))
    assert ac <= ab + bc + 1e-12


@pytest.mark.parametrize(
    ("now", "before", "bound", "measured"),
    [
        ([1.0, 3.0], [1.0, 3.0], 0.1, {"mean": 0.0}),
        ([True, False], [True, False], 0.1, {"shares": 0.0}),
        ([1, 3], [1, 3], 0.1, {"mean": 0.0}),
        ([1, 3], [3, 1], {"mean": 0, "shares": 0}, {"mean": 0.0, "shares": 0.0}),
        (["a"], ["b"], 3, {"shares": 1.0}),
        (["a"] * 3 + ["b"], ["a", "b"], 0.25, {"shares": 0.25}),  # exactly the bound is still allowed
    ],
)
def test_a_mere_number_bounds_the_mean_of_numbers_and_the_shares_of_the_rest(
    now: list, before: list, bound: Any, measured: dict[str, float]
):
    found = drift(now, before, bound)
    assert (found.measured, found.failures, found.notes) == ({"x": measured}, [], [])


def test_what_is_too_far_is_told_with_both_sides():
    assert drift([0.9, 1.1], [0.4, 0.6], 2).failures == [
        "checks.drift.x: expected the mean within 2 standard deviations of that of D, found 5 "
        "(mean 1; of D: 0.5, standard deviation 0.1)."
    ]
    assert drift(["cat"] * 3 + ["dog"], ["cat", "dog"], 0.2).failures == [
        "checks.drift.x: expected the shares of values within 0.2 of those of D (total variation), found 0.25; "
        "the most changed: 'cat' 50.0% -> 75.0%, 'dog' 50.0% -> 25.0%."
    ]
    assert "found inf (mean no finite number" in drift(pa.nulls(2, pa.float64()), [0.4, 0.6], 2).failures[0]
    assert "'cat' 100.0% -> 0.0%" in drift(pa.nulls(2), ["cat"], 0.9).failures[0]
    assert drift(["a"] * 3 + ["b"], ["a", "b"], 0.2499999).failures


@pytest.mark.parametrize(
    ("values", "bound", "why"),
    [
        (["a"], {"mean": 1}, "a mean needs numbers, and the column is string"),
        ([[1.0]], 0.1, "shares need text, truth values or whole numbers, and the column is list<item: double>"),
        (["a" * 65], 0.1, "has more or longer ones. Remove it"),
        (list(range(1001)), {"shares": 0.1}, "shares need at most 1000 values"),
    ],
)
def test_a_drift_that_can_never_be_measured_fails_even_without_a_past(values: Any, bound: Any, why: str):
    found = compare(Checks(drift={"x": bound}), {"x": record(values)}, None)
    assert why in found.failures[0]


def test_a_past_without_the_column_or_its_figures_passes_with_a_note():
    checks, now = Checks(drift={"x": 0.1}), {"x": record([1.0, 2.0])}
    for previous, why in [
        (None, "no receipt"),
        ({"partition": "D"}, "the receipt of D has no mean of it"),
        ({"partition": "D", "columns": {"x": record(["was text"])}}, "the receipt of D has no mean of it"),
    ]:
        found = compare(checks, now, previous)
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
