"""Checks before a publish, on the whole flow: a failed one changes nothing, and what was staged is not done again.

The rows are published as text, and checks see them with their types.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import CheckFailed
from overnight.tasks.storage.location import Location
from tests import jobs
from tests.conftest import WORKER_PATH
from tests.contracts.sinks.publications import read_files
from tests.flows.conftest import RunJob, write_parquet

MODEL = """
import numpy as np


class Size:
    def __call__(self, batch):
        x = batch["x"]
        return {"size": np.where(x < 50, "small", "large"), "score": x / 10, "dead": np.zeros((len(x), 4), np.float32)}


def few_large(receipt, previous, rows):
    assert (previous["partition"], receipt["rows_out"]) == ("2026-01-01", 10)
    large = rows.to_table(columns=["size"])["size"].to_pylist().count("large")
    return f"found {large} large ones of {rows.count_rows()}" if large > 2 else None


def satisfied(receipt, previous, rows):
    assert str(rows.to_table()["dead"].type).startswith("fixed_size_list")
    assert receipt["columns"]["size"]["classes"] == {"small": 1, "large": 9}
"""


def job(folder: Path, **checks: Any) -> dict[str, Any]:
    (WORKER_PATH / "check_test_models.py").write_text(MODEL)
    return jobs.job(
        folder,
        source={"kind": "parquet", "path": f"{folder}/in/{{partition}}"},
        inference=[{"kind": "python", "target": "check_test_models:Size", "batch_size": 4}],
        checks=checks,
        sink={"kind": "jsonl", "path": f"{folder}/out", "rows_per_part": 4, "compression": "zstd"},
    )


@pytest.mark.slow
def test_a_failed_check_publishes_nothing_and_a_loosened_one_publishes_what_was_staged(
    run_job: RunJob, tmp_path: Path
) -> None:
    write_parquet(tmp_path / "in/2026-01-01/a.parquet", x=range(0, 100, 10))
    write_parquet(tmp_path / "in/2026-01-02/a.parquet", x=range(40, 140, 10), note=pa.nulls(10, pa.string()))
    out, ledger = tmp_path / "out", tmp_path / "out/_overnight/date=2026-01-02"
    first = run_job(job(tmp_path, drift={"score": 0.1, "size": 0.1}), "2026-01-01")
    assert first["checks"]["previous"] is None
    assert len(first["checks"]["notes"]) == 2
    assert first["columns"]["score"]["mean"] == pytest.approx(4.5)
    assert first["columns"]["size"]["classes"] == {"large": 5, "small": 5}

    strict = {"drift": {"score": 1, "size": 0.1}, "not_constant": ["dead", "size"], "max_null": {"note": 0.5, "nte": 0}}
    with pytest.raises(CheckFailed, match="6 checks failed") as caught:
        run_job(job(tmp_path, **strict, python="check_test_models:few_large"), "2026-01-02")
    for check in ("max_null.nte", "max_null.note", "not_constant.dead", "drift.score", "drift.size", "python"):
        assert f"checks.{check}: " in str(caught.value)
    assert "few_large: found 9 large ones of 10" in str(caught.value)
    failure = json.loads((ledger / "failure.json").read_text())
    assert (failure["stage"], failure["error_type"]) == ("write", "CheckFailed")
    assert not (out / "date=2026-01-02").exists()
    assert not (ledger / "receipt.json").exists()
    assert not list(out.glob("_publishing*"))
    staged = list(ledger.glob("generations/*/parts/*.part"))
    assert sum(pq.ParquetFile(part).metadata.num_rows for part in staged) == 10

    loose = {"drift": {"score": 2, "size": 0.5}, "not_constant": ["size"], "python": "check_test_models:satisfied"}
    receipt = run_job(job(tmp_path, **loose), "2026-01-02")
    assert receipt["rows_resumed"] == receipt["rows_in"] == 10
    assert receipt["stages"]["infer"]["rows"] == 0
    assert receipt["checks"]["previous"]["partition"] == "2026-01-01"
    assert receipt["checks"]["drift"] == {"score": {"mean": pytest.approx(1.392621)}, "size": {"shares": 0.4}}
    assert receipt["warnings"] == ["the column note has only nulls or NaN in all 10 rows."]
    assert not (ledger / "failure.json").exists()
    rows = read_files(Location(str(out)), receipt["files"]).to_pylist()
    assert sorted(row["score"] for row in rows) == [float(score) for score in range(4, 14)]
    assert run_job(job(tmp_path, **loose), "2026-01-02") == receipt
    assert not list(ledger.glob("generations/*/parts"))


@pytest.mark.slow
def test_rows_that_disagree_with_the_published_ones_do_not_replace_them(run_job: RunJob, tmp_path: Path) -> None:
    write_parquet(tmp_path / "in/2026-01-01/a.parquet", x=range(0, 100, 10))
    agreement = {"with": "published", "at_least": 0.95, "column": "size"}
    first = run_job(job(tmp_path, agreement=agreement), "2026-01-01")
    assert first["checks"]["notes"] == [
        "checks.agreement: nothing to compare with, no rows are published yet; the check passes."
    ]
    again = run_job(job(tmp_path, agreement=agreement), "2026-01-01", force=True)
    assert (again["checks"]["agreement"]["share"], again["checks"]["agreement"]["rows"]) == (1.0, 10)

    write_parquet(tmp_path / "in/2026-01-01/a.parquet", x=[99, *range(10, 100, 10)])  # row 0 was small
    with pytest.raises(CheckFailed, match=r"expected at least 0\.95 .* the same size .* found 0\.9 \(9 of 10 rows\)"):
        run_job(job(tmp_path, agreement=agreement), "2026-01-01", force=True)
    kept = json.loads((tmp_path / "out/_overnight/date=2026-01-01/receipt.json").read_text())
    assert kept["generation"] == again["generation"]
    receipt = run_job(job(tmp_path, agreement=agreement | {"at_least": 0.9}), "2026-01-01")
    assert (receipt["rows_resumed"], receipt["checks"]["agreement"]["agreeing"]) == (10, 9)
