"""A backfill as a deployment's run, whose large partitions are runs of the job's own deployment."""

import json
import time
import urllib.error
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.chaos.conftest import wait_for_state
from tests.chaos.runs import Start, wait_for
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos

DAYS = ["2026-05-01", "2026-05-02", "2026-05-03"]
LONG = 600.0  # seconds, with which a partition counts as large
MODEL = '''
import os
import time


class Patient:
    """Doubles x; as slowly as the file beside it says."""

    def __call__(self, batch):
        time.sleep(float(open(os.environ["PACE"]).read()))
        return {"twice": batch["x"] * 2}
'''


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    for day in DAYS:
        (tmp_path / f"in/date={day}").mkdir(parents=True)
        pq.write_table(pa.table({"x": range(10)}), tmp_path / f"in/date={day}/a.parquet")
    (tmp_path / "patient_model.py").write_text(MODEL)
    (tmp_path / "pace").write_text("0")
    job = {
        "name": "large",
        "source": {"kind": "parquet", "path": str(tmp_path / "in/date={partition}")},
        "inference": [{"kind": "python", "target": "patient_model:Patient", "batch_size": 10}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    return tmp_path


def test_large_partitions_are_runs_of_the_jobs_deployment_and_cancel_with_the_backfill(
    start: Start, job_folder: Path, prefect_api: str
) -> None:
    pace = {"PACE": str(job_folder / "pace")}
    assert start("backfill", "job.yaml", "--start", DAYS[0], "--end", DAYS[-1], **pace).wait(200) == 0
    first = receipts(job_folder)
    for path, receipt in first.items():
        path.write_text(json.dumps(receipt | {"seconds": LONG}))
    start("serve", "job.yaml", **pace)

    done = wait_for_state(prefect_api, begin(prefect_api, job_folder), "COMPLETED", "FAILED", "CRASHED", seconds=280)
    assert done["state_type"] == "COMPLETED", done["state"]["message"]
    assert {receipt["backfill"] for receipt in receipts(job_folder).values()} == {done["id"][-8:]}
    children = children_of(prefect_api, done["id"])
    assert sorted(child["name"] for child in children) == [f"large/{day}" for day in DAYS]
    assert all(child["deployment_id"] and child["parent_task_run_id"] for child in children)

    (job_folder / "pace").write_text("20")
    for path, receipt in receipts(job_folder).items():
        path.write_text(json.dumps(receipt | {"seconds": LONG}))
    second = receipts(job_folder)
    cancelled = begin(prefect_api, job_folder)

    def at_work() -> bool:
        return any(child["state_type"] == "RUNNING" for child in children_of(prefect_api, cancelled))

    wait_for("a child at work", at_work, 200)
    ask(prefect_api, f"/flow_runs/{cancelled}/set_state", {"state": {"type": "CANCELLING"}})
    wait_for_state(prefect_api, cancelled, "CANCELLED", seconds=60)

    def children_ended() -> bool:
        return {child["state_type"] for child in children_of(prefect_api, cancelled)} == {"CANCELLED"}

    wait_for("the children to end", children_ended, 60)
    time.sleep(20)  # a process that Cancel ends early counts as crashed, and is started again
    wait_for("the children to end for good", children_ended, 60)
    assert receipts(job_folder) == second


def receipts(folder: Path) -> dict[Path, dict[str, Any]]:
    paths = [folder / f"out/_overnight/date={day}/receipt.json" for day in DAYS]
    return {path: json.loads(path.read_text()) for path in paths}


def begin(api: str, folder: Path) -> str:
    """Asks for a backfill of all days that are published, once the deployment is there; the flow run's id."""

    def deployment() -> Any:
        try:
            return ask(api, "/deployments/name/backfill/large")["id"]
        except urllib.error.HTTPError:
            return None

    parameters = {"start": DAYS[0], "end": DAYS[-1], "select": ["all"], "max_concurrent": 2, "reason": "again"}
    found = wait_for("the deployment", deployment)
    body = {"state": {"type": "SCHEDULED"}, "parameters": parameters}
    return str(ask(api, f"/deployments/{found}/create_flow_run", body)["id"])


def children_of(api: str, backfill: str) -> list[dict[str, Any]]:
    return list(ask(api, "/flow_runs/filter", {"flow_runs": {"tags": {"all_": [f"backfill:{backfill[-8:]}"]}}}))
