"""What may be published: counts, columns, and one message that tells every check that failed."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import CheckFailed
from overnight.tasks.rows.tensors import to_arrow
from overnight.tasks.write.checks.column_statistics import Columns, describe, summary
from overnight.tasks.write.checks.null_and_constant import (
    constant_violations,
    empty_columns,
    null_violations,
    unknown_columns,
)
from overnight.tasks.write.checks.run_checks import count_failures, verdict
from overnight.tasks.write.checks.settings import Checks
from overnight.tasks.write.merge.output_schema import publishable
from tests.tasks.runs import make_run


def columns(**values: Any) -> Columns:
    table = pa.table({name: v if isinstance(v, pa.Array) else to_arrow(v) for name, v in values.items()})
    return summary(describe(publishable(table)), values)


def receipt(total: int, filtered: int = 0, quarantined: int = 0, found: Columns | None = None) -> dict[str, Any]:
    return {
        "rows_in": total, "rows_out": total - filtered - quarantined, "rows_filtered": filtered,
        "rows_quarantined": quarantined, "columns": found or {},
    }  # fmt: skip


def test_quarantine_is_measured_against_the_source_rows():
    assert list(count_failures(Checks(), receipt(100, quarantined=1))) == []
    assert list(count_failures(Checks(), receipt(100, quarantined=2))) == [
        "checks.max_quarantined: 2 of 100 rows are quarantined, 1 are allowed (0.01)."
    ]


@pytest.mark.parametrize(
    ("fraction", "total", "limit"), [(0.01, 199, 1), (0.01, 200, 2), (0.29, 100, 29), (1, 7, 7), (0, 9, 0)]
)
def test_a_fraction_of_the_rows_is_never_rounded_up(fraction: float, total: int, limit: int):
    assert Checks(max_quarantined=fraction).quarantine_limit(total) == limit


@pytest.mark.parametrize(("fraction", "limit"), [(0.01, 1), (1e-9, 1), (0, 0)])
def test_a_share_below_one_row_allows_one_row(fraction: float, limit: int):
    checks = Checks(max_quarantined=fraction)
    assert [checks.quarantine_limit(total) for total in (1, 7, 99)] == [limit] * 3
    assert bool(list(count_failures(checks, receipt(99, quarantined=1)))) == (limit == 0)
    assert list(count_failures(checks, receipt(99, quarantined=2)))


@pytest.mark.parametrize("min_rows", [0, 1, 50])
def test_inputs_without_a_row_are_refused_unless_they_may_be_empty(min_rows: int):
    checks = Checks(min_rows=min_rows)
    found = list(count_failures(checks, receipt(0), may_be_empty=False))
    assert found[0].startswith("source.allow_empty: expected rows in the inputs, found none. Set it to true")
    assert found[1:] == [
        f"checks.min_rows: expected at least {min_rows} rows, found 0 (0 filtered, 0 quarantined)."
    ] * (min_rows > 0)
    assert list(count_failures(checks, receipt(0), may_be_empty=True)) == []


def test_too_few_rows_are_refused_and_an_empty_partition_is_not():
    assert list(count_failures(Checks(), receipt(5, filtered=5))) == [
        "checks.min_rows: expected at least 1 rows, found 0 (5 filtered, 0 quarantined)."
    ]
    assert list(count_failures(Checks(min_rows=0), receipt(5, filtered=5))) == []
    assert list(count_failures(Checks(), receipt(0))) == []


@pytest.mark.parametrize(("bound", "allowed"), [(0, 0), (0.3, 1), (0.49, 1), (0.5, 2), (1, 4)])
def test_nulls_and_nan_count_alike_against_the_bound(bound: float, allowed: int):
    label, score = pa.array(["a", None, "b", None]), pa.array([None, float("nan"), 1.0, 2.0])
    found = list(null_violations(Checks(max_null={"label": bound, "score": bound}), columns(label=label, score=score)))
    assert (
        found
        == [
            f"checks.max_null.label: expected at most {allowed} of 4 rows without a value ({bound:g}), found 2 null.",
            f"checks.max_null.score: expected at most {allowed} of 4 rows without a value ({bound:g}), "
            "found 1 null and 1 with NaN.",
        ][: 2 if allowed < 2 else 0]
    )


def test_embeddings_that_hold_nan_are_without_a_value():
    values = np.ones((3, 4), np.float32)
    values[1, 2] = np.nan
    assert "found 0 null and 1 with NaN" in next(null_violations(Checks(max_null={"e": 0}), columns(e=values)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["cat"] * 3, "found the one value 'cat' in all 3 rows that are not null"),
        (pa.array([None, 0.5, 0.5]), "found the one value 0.5 in all 2 rows"),
        (np.zeros((3, 2), np.float32), "found one value in all 3 rows"),
        (pa.array([None, None]), "found null in all 2 rows"),
        (["cat", "dog", "cat"], None),
        (np.eye(3), None),
        (["cat"], None),
    ],
)
def test_a_column_without_two_different_values_is_constant_unless_there_is_one_row(values: Any, said: str | None):
    found = list(constant_violations(Checks(not_constant=["x"]), columns(x=values)))
    assert len(found) == (said is not None)
    assert (said or "") in "".join(found)


def test_a_column_that_is_not_there_is_told_with_those_that_are():
    checks = Checks(max_null={"lable": 0}, not_constant=["score"], drift={"other": 1})
    assert list(unknown_columns(checks, columns(label=["a"], score=[1.0]))) == [
        "checks.max_null.lable: found no such column (did you mean label?); the columns are label, score.",
        "checks.drift.other: found no such column; the columns are label, score.",
    ]


def test_columns_without_any_value_are_worth_a_warning_and_optional_ones_are_not():
    found = columns(empty=pa.nulls(2), broken=np.full((2, 3), np.nan), some=pa.array([None, 1]), same=[1, 1])
    assert list(empty_columns(found)) == [
        "the column empty has only nulls or NaN in all 2 rows.",
        "the column broken has only nulls or NaN in all 2 rows.",
    ]


def test_every_failure_is_told_at_once_with_the_place_to_look_at(tmp_path: Path):
    run = make_run(tmp_path)
    found = receipt(10, quarantined=4, found=columns(label=["cat"] * 3))
    checks = Checks(min_rows=7, max_null={"lable": 0}, not_constant=["label"], drift={"label": 0.1})
    with pytest.raises(CheckFailed) as caught:
        verdict(run, checks, found, [])
    message = str(caught.value)
    assert message.startswith("4 checks failed:\n  checks.max_quarantined: 4 of 10")
    for said in ("checks.min_rows: ", "checks.max_null.lable: ", "checks.not_constant.label: "):
        assert message.count(said) == 1
    assert f"{run.parts}/*.part" in message
    assert "Nothing was published" in message


@pytest.mark.parametrize(("quarantined", "stage"), [(4, "infer"), (0, "write")])
def test_too_many_quarantined_rows_are_a_failure_of_the_stage_that_lost_them(
    tmp_path: Path, quarantined: int, stage: str
) -> None:
    found = receipt(10, quarantined=quarantined, found=columns(label=["cat"] * 3))
    with pytest.raises(CheckFailed) as caught:
        verdict(make_run(tmp_path), Checks(not_constant=["label"]), found, [], losing_stage="infer")
    assert caught.value.stage == stage


def test_what_passes_without_anything_to_compare_is_noted(tmp_path: Path):
    gained = verdict(make_run(tmp_path), Checks(drift={"label": 0.1}), receipt(2, found=columns(label=["a", "b"])), [])
    assert gained == {
        "checks": {
            "previous": None,
            "drift": {},
            "notes": ["checks.drift.label: nothing to compare with, no receipt; the check passes."],
        },
        "warnings": [],
    }


def test_a_partition_that_publishes_no_row_has_no_columns_to_check(tmp_path: Path):
    checks = Checks(min_rows=0, max_null={"label": 0}, not_constant=["label"], drift={"label": 0.1})
    assert verdict(make_run(tmp_path), checks, receipt(3, filtered=3), [])["warnings"] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"max_null": {"x": 1.5}},
        {"max_null": ["x"]},
        {"drift": {"x": -1}},
        {"drift": {"x": float("inf")}},
        {"drift": {"x": {}}},
        {"drift": {"x": {"shares": 2}}},
        {"not_constant": "x"},
        {"python": "no_colon"},
    ],
)
def test_bounds_that_mean_nothing_are_refused(settings: dict[str, Any]):
    with pytest.raises(ValidationError):
        Checks(**settings)
