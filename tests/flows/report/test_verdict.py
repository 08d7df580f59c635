"""One sentence decides whether to trust a run, and the checks stand with their bounds and values."""

from typing import Any

import pytest

from overnight.flows.report.columns import Column, Drift
from overnight.flows.report.verdict import Check, judge, list_checks
from overnight.tasks.write.kinds import Checks
from tests.flows.report.runs import receipt_of

PASSED = [Check("min_rows", "at least 1", "10")]
FAILURE = {"job": "daily", "partition": "2026-01-01", "status": "failed", "stage": "write", "error_type": "CheckFailed"}
DRIFTED = Column("x", "double", [], drift=[Drift("mean", 2.0, 0.5, is_checked=False)])
STEADY = Column("x", "double", [], drift=[Drift("mean", 0.1, 0.5, is_checked=False)])


@pytest.mark.parametrize(
    ("changes", "columns", "level", "text"),
    [
        ({}, [STEADY], "trust", "Trust it: 10 rows published of 10 read; 1 check passed, and no column drifted."),
        ({}, [], "trust", "no column can be compared with an earlier partition"),
        ({"rows_quarantined": 1}, [], "trust", "1 quarantined"),
        (
            {"warnings": ["the column x has only nulls."]},
            [],
            "look",
            "Look before you use it: the column x has only nulls.",
        ),
        ({}, [DRIFTED], "look", "drift in x"),
        ({"limit_rows": 10}, [], "look", "A sample, nothing is published"),
    ],
)
def test_a_published_run_is_trusted_unless_there_is_a_doubt(
    changes: dict[str, Any], columns: list[Column], level: str, text: str
) -> None:
    verdict = judge(receipt_of("2026-01-01", **changes), PASSED, columns, published_before=True)
    assert verdict.level == level
    assert text in verdict.sentence


def test_less_agreement_with_the_labels_is_a_doubt() -> None:
    receipt = receipt_of("2026-01-01")
    assert "fell from 90.0% to 80.0%" in judge(receipt, PASSED, [], True, (0.8, 0.9)).sentence
    assert judge(receipt, PASSED, [], True, (0.89, 0.9)).level == "trust"


@pytest.mark.parametrize(("agreement", "most_frequent", "level"), [(1 / 3, 1 / 3, "look"), (0.4, 1 / 3, "trust")])
def test_predictions_that_are_no_better_than_the_most_frequent_label_are_a_doubt(
    agreement: float, most_frequent: float, level: str
) -> None:
    verdict = judge(receipt_of("2026-01-01"), PASSED, [], True, (agreement, None), most_frequent=most_frequent)
    doubt = (
        "the predictions agree with the labels in 33.3% of the rows, no more than the most frequent label alone would"
    )
    assert (verdict.level, doubt in verdict.sentence) == (level, level == "look")


def test_the_sentence_counts_rows_that_the_job_filtered() -> None:
    sentence = judge(receipt_of("2026-01-01", rows_out=3, rows_filtered=7), PASSED, [], True).sentence
    assert "3 rows published of 10 read, 7 filtered;" in sentence


def test_a_page_without_its_checks_is_no_reason_for_trust() -> None:
    verdict = judge(receipt_of("2026-01-01"), [], [], True, lacks={"checks", "rows"})
    assert verdict.level == "look"
    doubts = "this page cannot show the checks; the published rows cannot be read"
    assert verdict.sentence.startswith(f"Look before you use it: {doubts}. 10 rows")


def test_a_failed_and_a_cancelled_run_say_what_is_published() -> None:
    failure = FAILURE | {"error_message": "2 checks failed:\n  checks.min_rows: none.\nNothing was published."}
    sentence = "the run failed in write, and the rows that were published before stay. "
    sentence += "Its error: 2 checks failed: checks.min_rows: none."
    assert judge(failure, [], [], published_before=True).sentence == f"Nothing new to trust: {sentence}"
    cancelled = judge(FAILURE | {"status": "cancelled"}, [], [], published_before=False)
    assert cancelled.sentence.endswith("cancelled in write, and no rows of this partition are published.")


def test_checks_have_bounds_and_values() -> None:
    checks = Checks.model_validate(
        {"drift": {"x": 0.5, "y": {"shares": 0.1}}, "max_null": {"x": 0.1}, "not_constant": ["x"]}
    )
    comparison = {"previous": {}, "drift": {"x": {"mean": 0.25}}, "notes": []}
    receipt = receipt_of("2026-01-01", {"x": {"mean": 1.0, "nulls": 1, "nan": 2}}, checks=comparison)
    assert list_checks(receipt, checks) == [
        Check("min_rows", "at least 1", "10"),
        Check("max_quarantined", "at most 1 (0.01)", "0"),
        Check("max_null.x", "at most 0.1 of the rows", "3 rows without a value"),
        Check("not_constant.x", "different values", "different values"),
        Check("drift.x.mean", "at most 0.5", "0.25"),
        Check("drift.y.shares", "at most 0.1", "nothing to compare with", "not compared"),
    ]


def test_the_checks_that_refused_a_publish_come_from_its_message() -> None:
    failure = FAILURE | {
        "error_message": "2 checks failed:\n  checks.min_rows: too few.\n  checks.drift.x: too far.\nNothing."
    }
    assert [(check.name, check.value, check.state) for check in list_checks(failure, Checks())] == [
        ("min_rows", "too few.", "failed"),
        ("drift.x", "too far.", "failed"),
    ]


def test_the_agreement_with_the_published_rows_has_its_bound_and_its_share() -> None:
    checks = Checks.model_validate({"agreement": {"with": "published", "at_least": 0.98}})
    measured = {"columns": ["predicted_label"], "share": 0.9875, "rows": 80, "agreeing": 79}
    receipt = receipt_of("2026-01-01", checks={"agreement": measured})
    value = "0.9875 of 80 rows have the same predicted_label as before"
    assert list_checks(receipt, checks)[-1] == Check("agreement", "at least 0.98", value)
    first = list_checks(receipt_of("2026-01-01"), checks)[-1]
    assert (first.value, first.state) == ("nothing to compare with", "not compared")
