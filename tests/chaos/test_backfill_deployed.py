"""A backfill as a deployment's run, whose large partitions are runs of the job's own deployment."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.conftest import set_state, start_deployed, wait_for_state
from tests.chaos.moments import Moments
from tests.chaos.runs import Start, set_pace, slow_model, wait_for
from tests.flows.conftest import RunJob
from tests.jobs import write_days, write_job
from tests.prefect_api import ask

pytestmark = [pytest.mark.chaos, pytest.mark.nightly]  # minutes: each child of a backfill starts a Ray of its own

DAYS = ["2026-05-01", "2026-05-02"]
LONG = 600.0  # seconds, with which a partition counts as large


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """A job of two days, whose model takes as long for its rows as a file says."""
    write_days(tmp_path, DAYS)
    stages = {
        "preprocess": [{"kind": "derive_columns", "columns": {"x": "id"}}],
        "inference": [slow_model(tmp_path, 0)],
    }
    write_job(tmp_path / "job.yaml", name="large", retries={"delay_seconds": 1}, **stages)
    return tmp_path


def test_large_partitions_are_runs_of_the_jobs_deployment_and_cancel_with_the_backfill(
    start: Start, job_folder: Path, prefect_api: str, run_job: RunJob, moments: Moments
) -> None:
    for day in DAYS:
        run_job(job_folder / "job.yaml", day)
    for path, receipt in receipts(job_folder).items():
        path.write_text(json.dumps(receipt | {"seconds": LONG}))
    first = receipts(job_folder)
    start("serve", "job.yaml")

    set_pace(job_folder, 20)
    cancelled = begin(prefect_api)

    def at_work() -> bool:
        return any(child["state_type"] == "RUNNING" for child in children_of(prefect_api, cancelled))

    wait_for("a child at work", at_work, 200)
    moments.record("Cancel of the backfill pressed")
    set_state(prefect_api, cancelled, "CANCELLING")
    wait_for_state(prefect_api, cancelled, "CANCELLED", seconds=60)

    def children_ended() -> bool:
        return {child["state_type"] for child in children_of(prefect_api, cancelled)} == {"CANCELLED"}

    wait_for("the children to end", children_ended, 60)
    assert receipts(job_folder) == first

    set_pace(job_folder, 0)
    done = wait_for_state(prefect_api, begin(prefect_api), "COMPLETED", "FAILED", "CRASHED", seconds=280)
    assert done["state_type"] == "COMPLETED", done["state"]["message"]
    assert {receipt["backfill"] for receipt in receipts(job_folder).values()} == {done["id"][-8:]}
    children = children_of(prefect_api, done["id"])
    assert sorted(child["name"] for child in children) == [f"large/{day}" for day in DAYS]
    assert all(child["deployment_id"] and child["parent_task_run_id"] for child in children)
    # A process that Cancel ends early counts as crashed, and starts again: it has done so by now.
    wait_for("the cancelled children to end for good", children_ended, 60)


def receipts(folder: Path) -> dict[Path, dict[str, Any]]:
    paths = [folder / f"out/_overnight/date={day}/receipt.json" for day in DAYS]
    return {path: json.loads(path.read_text()) for path in paths}


def begin(api: str) -> str:
    """Create a backfill of all days, which are published; return the flow run's id."""
    parameters = {"start": DAYS[0], "end": DAYS[-1], "select": ["all"], "max_concurrent": 2, "reason": "again"}
    return start_deployed(api, "backfill/large", **parameters)


def children_of(api: str, backfill: str) -> list[dict[str, Any]]:
    return list(ask(api, "/flow_runs/filter", {"flow_runs": {"tags": {"all_": [f"backfill:{backfill[-8:]}"]}}}))
