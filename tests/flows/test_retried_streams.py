"""A stream that failed is tried again on the CPUs that its own workers had: here all of them."""

from pathlib import Path

import pytest

from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, parquet, published, write_parquet

MODELS = """
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


class Thrice:
    def __call__(self, batch):
        return {**batch, "thrice": batch["x"] * 3}
"""
ROWS = 40


@pytest.mark.slow
def test_the_second_try_of_infer_has_the_cpus_of_the_first_and_publishes(run_job: RunJob, tmp_path: Path) -> None:
    (WORKER_PATH / "away_once.py").write_text(MODELS)
    write_parquet(tmp_path / "in/a.parquet", x=range(ROWS))
    away = {"name": "away", "target": "away_once:AwayOnce", "kwargs": {"mark": f"{tmp_path}/mark"}}
    thrice = {"name": "more", "target": "away_once:Thrice"}
    settings = {"kind": "python", "batch_size": 4, "num_cpus": 1, "workers": 1}
    job = jobs.job(
        tmp_path,
        retries={"attempts": 2, "delay_seconds": 1},
        busy_timeout_seconds=30,  # the second try fails after so long if it waits for the first
        source=parquet(tmp_path),
        inference=[away | settings, thrice | settings],
    )
    receipt = run_job(job)
    assert_settled(receipt)
    assert (tmp_path / "mark").exists()
    rows = published(receipt, tmp_path / "out").sort_by("x").to_pydict()
    assert rows.keys() == {"row_id", "uri", "x", "away_twice", "more_thrice"}
    assert rows["away_twice"] == [2 * x for x in range(ROWS)]
    assert rows["more_thrice"] == [3 * x for x in range(ROWS)]
