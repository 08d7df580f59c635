"""Checks before a publish, on the whole flow: a failed one changes nothing, and what was staged is not done again."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from overnight.tasks.errors import CheckFailed, JobError
from tests.conftest import WORKER_PATH
from tests.flows.conftest import Overnight, RunJob, published

MODEL = """
import numpy as np

class Size:
    def __call__(self, batch):
        x = batch["x"]
        return {"size": np.where(x < 50, "small", "large"), "score": x / 10, "dead": np.zeros((len(x), 4), np.float32)}
"""
HOOK = """
def few_large(receipt, previous, rows):
    assert previous is None and receipt["rows_out"] == 10
    sizes = rows.to_table(columns=["size"])["size"].to_pylist()
    if sizes.count("large") > 2:
        return f"expected at most 2 large ones, found {sizes.count('large')} of {rows.count_rows()}"

def satisfied(receipt, previous, rows):
    assert receipt["columns"]["size"]["classes"] == {"small": 6, "large": 4}
"""


@pytest.fixture(autouse=True, scope="module")
def _model() -> None:
    (WORKER_PATH / "check_test_models.py").write_text(MODEL)


def job(folder: Path, **checks: Any) -> dict[str, Any]:
    return {
        "name": "sizes",
        "source": {"kind": "parquet", "path": str(folder / "in/date={partition}")},
        "inference": [{"kind": "python", "target": "check_test_models:Size", "batch_size": 4}],
        "checks": checks,
        "sink": {"kind": "parquet", "path": str(folder / "out"), "rows_per_part": 4},
    }


def numbers(folder: Path, day: str, *values: int | None, **columns: Any) -> None:
    place = folder / f"in/date={day}/a.parquet"
    place.parent.mkdir(parents=True)
    pq.write_table(pa.table({"x": values, **columns}), place, row_group_size=5)


@pytest.mark.slow
def test_a_failed_check_publishes_nothing_and_a_loosened_one_publishes_what_was_staged(
    run_job: RunJob, tmp_path: Path
) -> None:
    numbers(tmp_path, "2026-01-01", *range(0, 100, 10))
    numbers(tmp_path, "2026-01-02", *range(40, 140, 10), note=pa.nulls(10, pa.string()))
    out, ledger = tmp_path / "out", tmp_path / "out/_overnight/date=2026-01-02"
    first = run_job(job(tmp_path, drift={"score": 0.1, "size": 0.1}), "2026-01-01")
    assert first["checks"]["previous"] is None
    assert len(first["checks"]["notes"]) == 2
    assert first["columns"]["score"]["mean"] == pytest.approx(4.5)
    assert first["columns"]["size"]["classes"] == {"large": 5, "small": 5}

    strict = {"drift": {"score": 1, "size": 0.1}, "not_constant": ["dead", "size"], "max_null": {"note": 0.5, "nte": 0}}
    with pytest.raises(CheckFailed) as caught:
        run_job(job(tmp_path, **strict), "2026-01-02")
    for said in (
        "5 checks failed",
        "checks.max_null.nte: found no such column (did you mean note?)",
        "checks.max_null.note: expected at most 5 of 10 rows",
        "checks.not_constant.dead: ",
        "checks.drift.score: expected the mean within 1 standard deviations of that of 2026-01-01, found 1.39",
        "checks.drift.size: expected the shares of values within 0.1 of those of 2026-01-01 (total variation), found ",
    ):
        assert said in str(caught.value)
    failure = json.loads((ledger / "failure.json").read_text())
    assert (failure["stage"], failure["error_type"]) == ("write", "CheckFailed")
    assert not (out / "date=2026-01-02").exists()
    assert not (ledger / "receipt.json").exists()
    assert not list(out.glob("_publishing*"))
    staged = list(ledger.glob("generations/*/parts/*.part"))
    assert sum(pq.ParquetFile(part).metadata.num_rows for part in staged) == 10

    loose = {"drift": {"score": 2, "size": 0.5}, "not_constant": ["size"]}
    receipt = run_job(job(tmp_path, **loose), "2026-01-02")
    assert receipt["rows_resumed"] == receipt["rows_in"] == 10
    assert receipt["stages"]["infer"]["rows"] == 0
    assert receipt["checks"]["previous"]["partition"] == "2026-01-01"
    assert receipt["checks"]["drift"] == {"score": {"mean": pytest.approx(1.392621)}, "size": {"shares": 0.4}}
    assert receipt["warnings"] == ["the column note has only nulls or NaN in all 10 rows."]
    assert not (ledger / "failure.json").exists()

    with pytest.raises(CheckFailed, match="dead"):
        run_job(job(tmp_path, not_constant=["dead"]), "2026-01-02", force=True)
    assert json.loads((ledger / "receipt.json").read_text()) == receipt
    assert len(published(receipt, out)) == 10


def test_a_check_of_one_s_own_that_is_not_there_fails_before_any_row_is_read(run_job: RunJob, tmp_path: Path) -> None:
    numbers(tmp_path, "2026-01-01", 1, 2)
    with pytest.raises(JobError, match="expected sise in check_test_models, found") as caught:
        run_job(job(tmp_path, python="check_test_models:sise"), "2026-01-01")
    assert caught.value.stage == "write"
    assert not list((tmp_path / "out").rglob("*.part"))


@pytest.mark.slow
def test_one_s_own_check_sees_the_rows_and_its_failure_ends_the_command_with_1(
    overnight: Overnight, tmp_path: Path
) -> None:
    numbers(tmp_path, "2026-01-01", *range(0, 100, 9)[:10])
    (tmp_path / "check_test_models.py").write_text(MODEL)
    (tmp_path / "check_test_hook.py").write_text(HOOK)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(tmp_path)))

    def run(function: str) -> tuple[int, dict[str, Any]]:
        setting = f"checks.python=check_test_hook:{function}"
        done = overnight("run", "job.yaml", "--partition", "2026-01-01", "--json", "--set", setting)
        return done.returncode, json.loads(done.stdout)

    status, failure = run("few_large")
    assert (status, failure["stage"], failure["error_type"]) == (1, "write", "CheckFailed")
    said = "check_test_hook:few_large: expected at most 2 large ones, found 4 of 10"
    assert failure["error_message"].startswith(f"checks.python: {said}")
    status, receipt = run("satisfied")
    assert (status, receipt["rows_resumed"], receipt["rows_out"]) == (0, 10, 10)
