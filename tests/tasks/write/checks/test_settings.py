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
from overnight.tasks.write.checks.run_checks import (
    constant_violations,
    count_failures,
    empty_columns,
    null_violations,
    unknown_columns,
    verdict,
)
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


@pytest.mark.parametrize(
    ("fraction", "total", "limit"),
    [
        (0.01, 199, 1),
        (0.01, 200, 2),
        (0.29, 100, 29),
        (1, 7, 7),
        (0, 9, 0),
        (0.01, 1, 1),  # a share below one row allows one row
        (1e-9, 99, 1),
    ],
)
def test_a_fraction_of_the_source_rows_may_be_quarantined_and_is_never_rounded_up(
    fraction: float, total: int, limit: int
):
    checks = Checks(max_quarantined=fraction, min_rows=0)
    assert checks.quarantine_limit(total) == limit
    assert list(count_failures(checks, receipt(total, quarantined=limit))) == []
    assert next(count_failures(checks, receipt(total, quarantined=limit + 1))) == (
        f"checks.max_quarantined: {limit + 1} of {total} rows are quarantined, {limit} are allowed ({fraction:g})."
    )


@pytest.mark.parametrize("min_rows", [0, 1, 50])
def test_inputs_without_a_row_are_refused_unless_they_may_be_empty(min_rows: int):
    checks = Checks(min_rows=min_rows)
    found = list(count_failures(checks, receipt(0), may_be_empty=False))
    assert found[0].startswith("source.allow_empty: ")
    few = f"checks.min_rows: expected at least {min_rows} rows, found 0 (0 filtered, 0 quarantined)."
    assert found[1:] == [few] * (min_rows > 0)
    assert list(count_failures(checks, receipt(0), may_be_empty=True)) == []


def test_too_few_rows_are_refused():
    assert list(count_failures(Checks(), receipt(5, filtered=5))) == [
        "checks.min_rows: expected at least 1 rows, found 0 (5 filtered, 0 quarantined)."
    ]
    assert list(count_failures(Checks(min_rows=0), receipt(5, filtered=5))) == []


@pytest.mark.parametrize(("bound", "allowed"), [(0, 0), (0.3, 1), (0.49, 1), (0.5, 2), (1, 4)])
def test_nulls_and_nan_count_alike_against_the_bound(bound: float, allowed: int):
    label, score = pa.array(["a", None, "b", None]), pa.array([None, float("nan"), 1.0, 2.0])
    found = null_violations(Checks(max_null={"label": bound, "score": bound}), columns(label=label, score=score))
    expected = f"expected at most {allowed} of 4 rows without a value ({bound:g}), found"
    both = [f"checks.max_null.label: {expected} 2 null.", f"checks.max_null.score: {expected} 1 null and 1 with NaN."]
    assert list(found) == (both if allowed < 2 else [])


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


@pytest.mark.parametrize(("quarantined", "stage"), [(4, "infer"), (0, "write")])
def test_every_failure_is_told_at_once_with_the_place_to_look_at_and_the_stage_that_lost_the_rows(
    tmp_path: Path, quarantined: int, stage: str
):
    run = make_run(tmp_path)
    found = receipt(10, quarantined=quarantined, found=columns(label=["cat"] * 3))
    checks = Checks(min_rows=11, max_null={"lable": 0}, not_constant=["label"], drift={"label": 0.1})
    with pytest.raises(CheckFailed) as caught:
        verdict(run, checks, found, [], losing_stage="infer")
    message = str(caught.value)
    settings = ["max_quarantined", "min_rows", "max_null.lable", "not_constant.label"][quarantined == 0 :]
    assert message.startswith(f"{len(settings)} checks failed:\n  checks.{settings[0]}: ")
    assert [message.count(f"checks.{setting}: ") for setting in settings] == [1] * len(settings)
    assert f"{run.parts}/*.part" in message
    assert caught.value.stage == stage


def test_what_passes_without_anything_to_compare_is_noted(tmp_path: Path):
    gained = verdict(make_run(tmp_path), Checks(drift={"label": 0.1}), receipt(2, found=columns(label=["a", "b"])), [])
    note = "checks.drift.label: nothing to compare with, no receipt; the check passes."
    assert gained == {"checks": {"previous": None, "drift": {}, "notes": [note]}, "warnings": []}


def test_a_partition_that_publishes_no_row_has_no_columns_to_check(tmp_path: Path):
    checks = Checks(min_rows=0, max_null={"label": 0}, not_constant=["label"], drift={"label": 0.1})
    assert verdict(make_run(tmp_path), checks, receipt(3, filtered=3), [])["warnings"] == []


@pytest.mark.parametrize(
    "settings",
    [
        *({"max_null": bound} for bound in ({"x": 1.5}, ["x"])),
        *({"drift": {"x": bound}} for bound in (-1, float("inf"), {}, {"shares": 2})),
        {"not_constant": "x"},
        {"python": "no_colon"},
    ],
)
def test_bounds_that_mean_nothing_are_refused(settings: dict[str, Any]):
    with pytest.raises(ValidationError):
        Checks(**settings)
