"""A model that fails for every row that it is tried on is told of at once, and its stage is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import WORKER_PATH
from tests.flows.conftest import Overnight

MODULE = """
def fails(batch):
    raise ValueError("wrong weights")
"""
SAID = "failing:fails: all 8 rows of the trial failed, the first, a.csv#0, with ValueError: wrong weights (failing.py:3"


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    (WORKER_PATH / "failing.py").write_text(MODULE)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x\n" + "1\n" * 40)
    return {
        "name": "failing",
        "source": {"kind": "csv", "path": "in"},
        "inference": [{"kind": "python", "target": "failing:fails", "batch_size": 16}],
        "sink": {"kind": "parquet", "path": "out"},
    }


def run(overnight: Overnight, job: dict[str, Any], folder: Path, **checks: float) -> tuple[dict[str, Any], str]:
    (folder / "job.yaml").write_text(yaml.safe_dump(job | {"checks": checks}))
    done = overnight("run", "job.yaml", "--json")
    return json.loads(done.stdout), done.stderr


def test_a_trial_whose_rows_are_too_many_to_lose_ends_the_run_before_the_stream(
    overnight: Overnight, job: dict[str, Any], tmp_path: Path
) -> None:
    failure, shown = run(overnight, job, tmp_path, max_quarantined=0.01)
    assert (failure["stage"], failure["error_type"]) == ("infer", "TooManyQuarantined")
    assert failure["error_message"].startswith("at least 8 rows are quarantined;")  # a batch has 16
    assert "8 x infer: ValueError: wrong weights (failing.py:3, in fails)" in failure["error_message"]
    assert SAID in shown


def test_where_the_job_allows_it_the_run_goes_on_and_its_receipt_warns(
    overnight: Overnight, job: dict[str, Any], tmp_path: Path
) -> None:
    receipt, shown = run(overnight, job, tmp_path, max_quarantined=1, min_rows=0)
    assert (receipt["rows_quarantined"], receipt["rows_out"]) == (40, 0)
    assert SAID in shown
    assert [warning for warning in receipt["warnings"] if warning.startswith(SAID)]
    assert [found["stage"] for found in receipt["incidents"] if found["what"].startswith(SAID)] == ["infer"]
