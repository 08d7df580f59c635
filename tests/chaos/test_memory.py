"""A run with a remembered step is killed: what the step made of staged rows serves the next run."""

from pathlib import Path

import pytest
import yaml

from tests.chaos.conftest import ROWS, TRIED_TWICE, settled_rows, wait_for_parts
from tests.chaos.runs import Start, kill_flow, set_pace, slow_model, traced_rows
from tests.flows.conftest import RunJob, published

pytestmark = pytest.mark.chaos


def test_a_killed_run_loses_no_remembered_row_of_a_step(
    start: Start, job_folder: Path, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overnight.tasks.state.lease.EXPIRY_SECONDS", 10)
    file, step = job_folder / "job.yaml", slow_model(job_folder) | {"columns": ["x"], "remember": True}
    job = yaml.safe_load(file.read_text()) | {"inference": [], "memory": {"path": str(job_folder / "memory")}}
    file.write_text(yaml.safe_dump(job | {"preprocess": [step]}))
    process = start()
    wait_for_parts(process, job_folder, 5)
    kill_flow(process)
    staged, traced = settled_rows(job_folder), traced_rows(job_folder)
    set_pace(job_folder, 0)
    file.write_text(yaml.safe_dump(job | {"preprocess": [step, *job["preprocess"]]}))
    receipt = run_job(file)
    rows = published(receipt, job_folder / "out").to_pylist()
    assert sorted((row["x"], row["twice"]) for row in rows) == [(x, 2 * x) for x in range(ROWS) if x % 10 != 3]
    assert receipt["rows_resumed"] == 0, "another filter makes another generation"
    [remembered] = receipt["rows_remembered"].values()
    assert remembered >= staged > 0
    assert traced_rows(job_folder) - traced <= ROWS - remembered + TRIED_TWICE
    again = run_job(file, force=True)
    assert "rows_remembered" not in again
    file.write_text(yaml.safe_dump(job | {"preprocess": [step]}))
    traced = traced_rows(job_folder)
    receipt = run_job(file)  # it resumes the run that was killed
    assert receipt["rows_resumed"] + sum(receipt["rows_remembered"].values()) == ROWS
    assert traced_rows(job_folder) == traced, "the step ran on no row"
