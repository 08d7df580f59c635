"""Code beside a job file is found by whole runs of every kind of command, from a folder that is not the job's."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import jobs
from tests.contracts.orchestration.suite import DAY
from tests.flows.conftest import Overnight, overnight, overnight_process  # noqa: F401

MODULE = """
class Doubled:
    def __call__(self, batch):
        return {"twice": batch["id"] * 2}
"""


@pytest.mark.slow
def test_run_and_backfill_find_the_code_beside_the_job(
    overnight: Overnight,  # noqa: F811
    tmp_path: Path,
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    days = [DAY, "2026-01-03"]
    jobs.write_days(project, days)
    (project / "doubled_beside_the_job.py").write_text(MODULE)
    model = {"kind": "python", "target": "doubled_beside_the_job:Doubled"}
    jobs.write_job(project / "job.yaml", inference=[model], schedule=jobs.DAILY)
    job = "../project/job.yaml"
    run = overnight("run", job, "--partition", DAY, "--json", folder=elsewhere)
    assert run.returncode == 0, run.stderr
    backfill = overnight("backfill", job, "--start", DAY, "--end", days[1], "--json", folder=elsewhere)
    assert backfill.returncode == 0, backfill.stderr
    assert {row["partition"] for row in json.loads(backfill.stdout)} <= set(days)
    for day in days:
        [file] = (project / "out" / f"date={day}").glob("*.parquet")
        assert pq.ParquetFile(file).read(["twice"])["twice"].to_pylist() == [0, 2]
