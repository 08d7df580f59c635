"""A stream that failed is tried again on the CPUs that its own workers had."""

import importlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, published

MODEL = """
import pathlib

from overnight.tasks.errors import ServiceUnavailable


class AwayOnce:
    def __init__(self, mark):
        self.mark = pathlib.Path(mark)

    def __call__(self, batch):
        if batch["x"].max() >= 20 and not self.mark.exists():
            self.mark.touch()
            raise ServiceUnavailable("the service of the model restarts")
        return {"twice": batch["x"] * 2}
"""
ROWS = 40


def test_the_second_try_of_infer_has_the_cpus_of_the_first_and_publishes(run_job: RunJob, tmp_path: Path) -> None:
    (WORKER_PATH / "away_once.py").write_text(MODEL)
    importlib.invalidate_caches()
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"x": range(ROWS)}), tmp_path / "in/a.parquet")
    model = {"kind": "python", "target": "away_once:AwayOnce", "kwargs": {"mark": str(tmp_path / "mark")}}
    job = {
        "name": "retried",
        "retries": {"attempts": 2, "delay_seconds": 1},
        "busy_timeout_seconds": 30,  # the second try fails after so long if it waits for the first
        "source": {"kind": "parquet", "path": str(tmp_path / "in")},
        "inference": [model | {"batch_size": 4, "num_cpus": 1}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job)
    assert (tmp_path / "mark").exists()
    assert sorted(published(receipt, tmp_path / "out")["twice"].to_pylist()) == [2 * x for x in range(ROWS)]
    assert_settled(receipt)
