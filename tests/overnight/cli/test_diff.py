"""`overnight diff` as it is typed: what differs between two results, and the exit codes."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.published_rows import keep_sample
from overnight.tasks.write.checks.column_statistics import describe, summary
from tests.overnight.cli.results_on_disk import typed, write_job, write_result

IDS = ["a#0", "a#1", "a#2", "a#3"]
A = pa.table({"row_id": IDS, "uri": ["/1"] * 4, "label": ["cat", "dog", "cat", None], "vector": [[0.5] * 9] * 4})
B = pa.table(
    {
        "row_id": ["a#3", "a#2", "a#1", "b#0"],
        "uri": ["/2"] * 4,
        "label": [None, "dog", "dog", "cat"],
        "vector": [[0.5] * 9, [0.5] * 9, [0.5] * 8 + [0.501], [0.5] * 9],
    }
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "120")
    write_job(tmp_path)
    write_result(tmp_path, "2026-01-01", A)
    write_result(tmp_path, "2026-01-02", B, {"a#0": "bad"})
    return tmp_path


def document(folder: Path, *arguments: str) -> dict[str, Any]:
    return dict(json.loads(typed("diff", folder, *arguments, "--json")[1]))


def test_two_partitions_differ_in_rows_and_in_columns_with_counts_and_examples(folder: Path) -> None:
    code, out, _ = typed("diff", folder, "2026-01-01", "2026-01-02")
    assert code == 1
    assert [line.strip() for line in out.splitlines()] == [
        "daily: A is 2026-01-01, B is 2026-01-02",
        "only in A: 1 rows, 1 of them quarantined in B: a#0",
        "only in B: 1 rows: b#0",
        "rows in both: 3, changed: 2",
        *("label: 1 changed", "a#2: cat -> dog"),
        *("vector: 1 changed", "a#1: [0.50, 0.50, … 9], the numbers differ by at most 0.001"),
    ]
    found = document(folder, "2026-01-01", "2026-01-02")
    assert (found["rows_in_both"], found["rows_changed"]) == (3, 2)
    assert found["only_a"] == {"rows": 1, "quarantined_in_other": 1, "examples": ["a#0"]}
    assert found["columns"]["vector"]["examples"][0]["b"] == [0.5] * 8 + [0.501]  # whole


def test_equal_results_exit_with_0_and_two_places_of_one_day_compare_the_uri_too(folder: Path) -> None:
    job = load_job(folder / "job.yaml")
    keep_sample(job, write_result(folder, "2026-01-01", A, sample="g1"))
    keep_sample(job, write_result(folder, "2026-01-01", A.set_column(1, "uri", [["/9"] * 4]), sample="g2"))
    assert typed("diff", folder, "2026-01-01", "2026-01-01/sample-1")[0] == 0
    assert typed("diff", folder, "sample-1", "published", "--partition", "2026-01-01")[0] == 0
    found = document(folder, "sample-1", "sample")
    assert (found["b"], list(found["columns"])) == ("2026-01-01/sample-2", ["uri"])


def test_columns_that_one_result_lacks_are_named_and_other_types_are_compared_as_text(folder: Path) -> None:
    label = pa.array([1, 2, 3, 4])
    write_result(folder, "2026-01-03", pa.table({"row_id": IDS, "label": label, "score": label}))
    write_result(folder, "2026-01-04", pa.table({"row_id": IDS, "label": ["1", "2", "3", "5"], "note": label}))
    found = document(folder, "2026-01-03", "2026-01-04")
    assert (found["columns_only_a"], found["columns_only_b"]) == (["score"], ["note"])
    assert found["columns"] == {"label": {"rows_changed": 1, "examples": [{"row_id": "a#3", "a": 4, "b": "5"}]}}


@pytest.mark.parametrize(
    ("b", "said"),
    [
        ("2026-01-09", "expected 2026-01-09 published, found none. Make it with: overnight run"),
        ("2026-01-01/sample", "expected a sample of 2026-01-01, found none"),
        ("2026-01-01/other", "expected 2026-01-01/sample, 2026-01-01/sample-2 or 2026-01-01/published"),
        ("other", "expected a day as YYYY-MM-DD, found other"),
    ],
)
def test_a_result_that_cannot_be_compared_exits_with_2_and_a_sentence(folder: Path, b: str, said: str) -> None:
    code, out, err = typed("diff", folder, "2026-01-01", b)
    assert (code, out) == (2, "")
    assert said in err


def test_two_days_of_other_rows_have_shares_means_nulls_and_drift(folder: Path) -> None:
    for day, labels in (("2026-02-01", ["cat"] * 8), ("2026-02-02", ["cat"] * 2 + ["dog"] * 6)):
        rows = pa.table({"row_id": [f"{day}/{n}.jpg" for n in range(8)], "label": labels, "score": [0.5] * 7 + [None]})
        receipt = write_result(folder, day, rows) | {"columns": summary(describe(rows), ())}
        (folder / f"out/_overnight/date={day}/receipt.json").write_text(json.dumps(receipt))
    code, out, _ = typed("diff", folder, "2026-02-01", "2026-02-02")
    lines = [line.strip() for line in out.splitlines()]
    assert code == 1
    assert "all rows of A -> all rows of B, by the statistics of their columns:" in lines
    assert "label drift (string)" in lines
    assert {"cat: 100.0% -> 25.0%", "dog: 0.0% -> 75.0%", "without a value: 12.5% -> 12.5%", "mean: 0.5 -> 0.5"} <= {
        *lines
    }
    found = document(folder, "2026-02-01", "2026-02-02")["statistics"]
    assert found[0]["figures"]["cat"] == {"kind": "value", "a": 1.0, "b": 0.25}
    assert found[0]["drift"][0]["is_marked"]
