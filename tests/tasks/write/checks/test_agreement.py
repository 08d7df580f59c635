"""The check of staged rows against the published rows that they replace."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import CheckFailed
from overnight.tasks.state.run import Run, write_json
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.agreement import AgreementResult, compare_with_published
from overnight.tasks.write.checks.column_statistics import describe, summary
from overnight.tasks.write.checks.run_checks import verdict
from overnight.tasks.write.checks.settings import AgreementBound, Checks
from overnight.tasks.write.sinks.parquet import ParquetSink
from tests.tasks.runs import make_run

IDS = [f"{number}.jpg" for number in range(10)]
BOUND: dict[str, Any] = {"with": "published", "at_least": 0.9}


def rows(labels: list[Any], ids: list[str] = IDS, column: str = "predicted_label") -> pa.Table:
    return pa.table({"row_id": ids, column: labels, "score": [0.5] * len(ids)})


def publish(run: Run, table: pa.Table) -> None:
    pq.write_table(table, Path(str(run.sink)) / "published.parquet")
    receipt = {"generation": "g1", "job": "job", "files": ["published.parquet"]}
    write_json(run.ledger / "receipt.json", receipt | {"columns": summary(describe(table), ())})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "out").mkdir()
    return make_run(tmp_path)


def checked(run: Run, table: pa.Table, **bound: Any) -> AgreementResult:
    file = Path(str(run.sink)) / "staged.parquet"
    pq.write_table(table, file)
    columns = summary(describe(table), ())
    sink = ParquetSink(path=str(run.sink))
    setting = AgreementBound.model_validate(BOUND | bound)
    return compare_with_published(run, setting, sink, columns, [Location(str(file))])


def test_rows_that_agree_pass_and_the_receipt_gets_the_share(run: Run) -> None:
    publish(run, rows(["cat"] * 10))
    result = checked(run, rows(["cat"] * 8 + ["dog", "cat"])[::-1])
    assert (result.failures, result.notes) == ([], [])
    assert result.measured == {
        **{"columns": ["predicted_label"], "generation": "g1", "share": 0.9, "rows": 10, "agreeing": 9},
        **{"only_staged": 0, "only_published": 0},
    }


def test_too_many_rows_that_changed_fail_with_what_was_expected_found_and_what_to_do(run: Run) -> None:
    publish(run, rows(["cat"] * 10))
    result = checked(run, rows(["dog"] * 2 + ["cat"] * 8))
    [failure] = result.failures
    assert failure.startswith("checks.agreement: expected at least 0.9 of the rows to have the same predicted_label")
    assert "found 0.8 (8 of 10 rows)" in failure
    assert "lower at_least" in failure
    receipt = {"columns": {}, "rows_out": 10, "rows_in": 10, "rows_filtered": 0, "rows_quarantined": 0}
    with pytest.raises(CheckFailed, match=r"found 0\.8 "):
        verdict(run, Checks(), receipt, [], agreement=result)


def test_only_rows_of_both_count(run: Run) -> None:
    publish(run, rows(["cat"] * 10))
    measured = checked(run, rows(["cat"] * 10, [*IDS[:4], *(f"new-{n}" for n in range(6))])).measured
    assert (measured["rows"], measured["only_staged"], measured["only_published"]) == (4, 6, 6)


@pytest.mark.parametrize(
    ("published", "note"),
    [
        (None, "no rows are published yet"),
        (rows(["cat"], ["other"]), "no row_id is among the published ones"),
        (rows(["cat"] * 10, column="mood"), "the published rows have no predicted_label"),
    ],
)
def test_without_rows_to_compare_with_it_passes_and_says_so(run: Run, published: pa.Table | None, note: str) -> None:
    if published is not None:
        publish(run, published)
    result = checked(run, rows(["cat"] * 10))
    assert (result.failures, result.measured) == ([], {})
    assert result.notes == [f"checks.agreement: nothing to compare with, {note}; the check passes."]


def test_a_column_of_numbers_and_a_job_without_a_predicted_label_fail_with_the_remedy(run: Run) -> None:
    publish(run, rows(["cat"] * 10))
    assert "Use checks.drift" in checked(run, rows(["cat"] * 10), column="score").failures[0]
    assert "Name a column" in checked(run, rows(["cat"] * 10, column="mood")).failures[0]


def test_a_named_column_that_does_not_exist_is_reported_with_the_others() -> None:
    checks = Checks.model_validate({"agreement": BOUND | {"column": "mod"}})
    assert checks.columns() == {"agreement.column": "mod"}
