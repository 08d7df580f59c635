"""How far columns are from an earlier receipt: the distances, and what they are held against."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.state.run import Run, write_json
from overnight.tasks.storage.location import Location
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


def test_a_mean_s_shift_is_measured_in_deviations_of_before():
    assert mean_shift(record([3.0, 5.0]), record([1.0, 3.0])) == 2.0
    assert mean_shift(record([1.0, 3.0, 200.0, -196.0]), record([1.0, 3.0])) == 0.0


def test_from_a_constant_any_other_mean_is_infinitely_far_but_rounding_is_not():
    assert mean_shift(record([0.5, 0.6]), record([0.5, 0.5])) == math.inf
    assert mean_shift(record([0.1, 0.3 - 0.2]), record([0.1, 0.1])) == 0.0
    assert mean_shift(record([math.nan, None]), record([1.0, 2.0])) == math.inf
    assert mean_shift(record([1.0]), record([math.nan])) is None


def test_the_distance_of_shares_is_the_part_that_has_moved():
    assert share_distance(record(["a", "b"]), record(["a", "a", "b", "b"])) == 0.0
    assert share_distance(record(["a", "a", "a", "b"]), record(["a", "b"])) == 0.25
    assert share_distance(record(["c"]), record(["a", "b"])) == 1.0
    assert share_distance(record(pa.nulls(2, pa.string())), record(["a"])) == 1.0
    assert share_distance(record(["a"]), record(pa.nulls(2))) is None


LABELS = st.lists(st.sampled_from("abcd"), min_size=1)


@given(LABELS, LABELS, LABELS)
def test_the_distance_of_shares_is_a_metric_between_0_and_1(one: list, two: list, three: list):
    a, b, c = record(one), record(two), record(three)
    ab, bc, ac = share_distance(a, b), share_distance(b, c), share_distance(a, c)
    assert ab is not None
    assert bc is not None
    assert ac is not None
    assert 0 <= ab <= 1 + 1e-12
    assert ab == pytest.approx(share_distance(b, a))
    assert ac <= ab + bc + 1e-12


def test_a_mere_number_bounds_the_mean_of_numbers_and_the_shares_of_the_rest():
    assert drift([1.0, 3.0], [1.0, 3.0], 0.1).measured == {"x": {"mean": 0.0}}
    assert drift([True, False], [True, False], 0.1).measured == {"x": {"shares": 0.0}}
    assert drift([1, 3], [1, 3], 0.1).measured == {"x": {"mean": 0.0}}
    assert drift([1, 3], [3, 1], {"mean": 0, "shares": 0}).measured == {"x": {"mean": 0.0, "shares": 0.0}}
    assert drift(["a"], ["b"], 3).measured == {"x": {"shares": 1.0}}


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


def test_exactly_the_bound_is_still_allowed():
    assert not drift(["a"] * 3 + ["b"], ["a", "b"], 0.25).failures
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
    leave_receipt(make_run(tmp_path, "all"))
    assert found(runs[5]) is None
    leave_receipt(runs[5])
    assert found(runs[5]) == "2026-01-05"  # its own last one, for there is none before
    leave_receipt(runs[1])
    leave_receipt(runs[2])
    leave_receipt(runs[7])
    leave_receipt(runs[4], job="another")
    write_json(runs[3].ledger / "failure.json", {"status": "failed"})
    assert found(runs[5]) == "2026-01-02"
    assert found(make_run(tmp_path, "2026-01-05", limit_rows=10)) is None


def test_a_job_without_dates_is_compared_with_its_last_run(tmp_path: Path):
    run = make_run(tmp_path, "all")
    leave_receipt(make_run(tmp_path, "2026-01-01"))
    assert found(run) is None
    leave_receipt(run)
    assert found(run) == "all"


def test_the_past_is_found_on_s3_and_the_search_for_it_ends(s3: Any):
    s3.create_bucket(Bucket="drift")
    place = Location("s3://drift/job")
    days = [f"2026-{1 + n // 28:02d}-{1 + n % 28:02d}" for n in range(LOOK_BACK + 2)]
    runs = [make_run(str(place), day) for day in days]
    leave_receipt(runs[0])
    for run in runs[1:-1]:
        write_json(run.ledger / "failure.json", {})
    assert found(runs[LOOK_BACK]) == days[0]
    assert found(runs[LOOK_BACK + 1]) is None
