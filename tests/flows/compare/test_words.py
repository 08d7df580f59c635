"""What a comparison says: the verdict by the interval, sentences, and JSON."""

import json
from pathlib import Path

import pytest

from overnight.flows.compare.words import document, level_of, sentences, title_of
from tests.flows.compare.sides_by_hand import compared, labelled


@pytest.mark.parametrize(
    ("rows", "changed", "level"),
    [(2000, 10, "trust"), (2000, 200, "no"), (60, 2, "look"), (60, 0, "trust"), (0, 0, "look")],
)
def test_the_interval_of_the_agreement_decides_the_verdict(tmp_path: Path, rows: int, changed: int, level: str) -> None:
    a, b = labelled(["cat"] * rows), labelled(["dog"] * changed + ["cat"] * (rows - changed))
    assert level_of(compared(tmp_path, a, b)) == level


def test_the_sentences_have_the_agreement_the_accuracy_and_what_is_missing(tmp_path: Path) -> None:
    truth = ["cat"] * 1000
    a, b = labelled(truth, label=truth), labelled(["dog"] * 50 + ["cat"] * 950, label=truth)
    found = compared(tmp_path, a, b)
    assert sentences(found) == [
        "95.0% of 1,000 rows agree in predicted_label (95 % interval: 93.5% to 96.2%).",
        "The share of rows equal to label is 100.0% in A and 95.0% in B: 50 rows are right only in A, 0 only in B "
        "(McNemar's test: p < 0.001).",
    ]
    few = compared(tmp_path, a[:100], b[:100])
    few.is_complete = False
    assert sentences(few)[-1] == "It takes 9,809 rows to see a difference of 2.0%."
    assert title_of(compared(tmp_path, a[:0], b[:0])) == "Other rows"
    assert sentences(compared(tmp_path, a[:0], b[:0]))[0] == "No row is on both sides: nothing can be compared."


def test_drawn_rows_that_one_side_lost_do_not_agree(tmp_path: Path) -> None:
    a = labelled(["cat"] * 1000)
    few = compared(tmp_path, a, a[:900])
    assert title_of(few) == title_of(compared(tmp_path, a, a[:0])) == "They differ"
    assert sentences(few)[1] == "100 of the drawn rows are on one side only: they count as different."


def test_the_document_is_json_with_flips_distances_and_both_sides(tmp_path: Path) -> None:
    a = labelled(["cat", "dog"], confidence=[0.5, 0.75])
    b = labelled(["cat", "cat"], confidence=[0.25, 0.25])
    found = json.loads(json.dumps(document(compared(tmp_path, a, b, **{"9": "ValueError: bad"}))))
    assert found["columns"]["predicted_label"]["flips"] == [{"a": "dog", "b": "cat", "rows": 1}]
    assert found["columns"]["confidence"]["distances"]["mean"] == 0.375
    assert (found["column"], found["agreement"], found["rows"]) == ("predicted_label", 0.5, 2)
    assert found["b"]["quarantined"] == {"9": "ValueError: bad"}
