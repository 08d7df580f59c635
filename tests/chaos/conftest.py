"""A slow job in a folder of its own, what a server and a disk know of its runs, and what must be true in the end."""

import json
import os
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from overnight.flows.deploy.automations import FOLDER
from overnight.tasks.workers import fork_server
from tests.chaos.runs import (
    MARK,
    SESSION,
    Process,
    Start,
    kill,
    processes_with,
    slow_model,
    started_runs,
    traced_rows,
    wait_for,
    wait_until,
)
from tests.flows.conftest import run_job
from tests.prefect_api import ask

__all__ = ["run_job"]  # a fixture here as well

ROWS, PER_FILE, PER_PART = 1200, 100, 40
TRIED_TWICE = 16  # a few rows are tried before the stream


@pytest.fixture(autouse=True, scope="session")
def imported() -> Iterator[None]:
    """One fork server for all runs, which find its address in their environment: they import what workers need once.

    It and the session's Ray have a mark of their own.
    """
    os.environ[MARK] = SESSION
    with fork_server.started():
        yield
    del os.environ[MARK]


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """A folder with the job `slow`."""
    return write_job(tmp_path)


def write_job(folder: Path, name: str = "slow", **settings: Any) -> Path:
    """Write a job of 1,200 rows in 12 files, of which it filters every tenth; return its folder."""
    (folder / "in").mkdir()
    for i in range(ROWS // PER_FILE):
        rows = range(i * PER_FILE, (i + 1) * PER_FILE)
        pq.write_table(pa.table({"x": rows}), folder / f"in/{i:02d}.parquet", row_group_size=PER_PART)
    job = {
        "name": name,
        "retries": {"delay_seconds": 1},
        "source": {"kind": "parquet", "path": str(folder / "in")},
        "preprocess": [{"kind": "filter_rows", "expression": "x % 10 != 3"}],
        "inference": [slow_model(folder) | {"batch_size": 20}],
        "sink": {"kind": "parquet", "path": str(folder / "out"), "rows_per_part": PER_PART},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job | settings))
    return folder


@pytest.fixture
def start(prefect_api: str, job_folder: Path) -> Iterator[Start]:
    """Start `overnight run`, or another command, in `job_folder`; it ends with the test."""
    with started_runs(job_folder, prefect_api) as start:
        yield start


def parts(folder: Path) -> list[Path]:
    return list((folder / "out/_overnight/all/generations").glob("*/parts/*.part"))


def wait_for_parts(process: Process, folder: Path, count: int) -> None:
    """Wait until so many parts are staged. Fail if the run ends before."""
    wait_until(lambda: len(parts(folder)) >= count, process)


def wait_for_nodes(process: Process, folder: Path, count: int) -> None:
    """Wait until the run has recorded that so many nodes are alive. Fail if the run ends before."""

    def alive() -> list[int]:
        files = (folder / "out/_overnight/all/generations").glob("*/nodes.json")
        return [len(json.loads(file.read_text())["alive"]) for file in files]

    wait_until(lambda: alive() == [count], process)


def settled_rows(folder: Path) -> int:
    """Return how many rows the staged parts hold."""
    return sum(pq.read_metadata(part).num_rows for part in parts(folder))


def assert_exact(receipt: dict[str, Any], folder: Path) -> None:
    """Assert that the table below the folder is row for row what an undisturbed run gives."""
    assert_rows(receipt, lambda file: (folder / "out" / file).read_bytes())


def assert_rows(receipt: dict[str, Any], read: Callable[[str], bytes]) -> None:
    rows = [row for file in receipt["files"] for row in pq.read_table(pa.BufferReader(read(file))).to_pylist()]
    assert sorted((row["x"], row["twice"], row["row_id"]) for row in rows) == sorted(
        (x, 2 * x, f"{x // PER_FILE:02d}.parquet#{x % PER_FILE}") for x in range(ROWS) if x % 10 != 3
    )
    assert receipt["rows_in"] == receipt["rows_out"] + receipt["rows_filtered"]


def assert_resumed(receipt: dict[str, Any], folder: Path, settled: int, traced: int) -> None:
    """Assert that the last attempt took up the `settled` rows, and that the model then saw only the others."""
    assert receipt["rows_resumed"] >= settled > 0
    assert traced_rows(folder) - traced <= ROWS * 9 // 10 - settled + TRIED_TWICE


def receipt_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "out/_overnight/all/receipt.json").read_text()))


def lease_is_held(folder: Path) -> bool:
    (newest,) = (folder / "out/_overnight/all/lease").iterdir()
    return not json.loads(newest.read_text())["released"]


def deploy(start: Start, folder: Path, name: str) -> None:
    """Deploy the job of the folder under this name, with the work pool and the rest of the file that ships."""
    shipped = yaml.safe_load((FOLDER.parent / "prefect.yaml").read_text())
    parameters = {"job": str(folder / "job.yaml")}
    deployment = {**shipped["deployments"][0], "name": name, "parameters": parameters, "schedules": []}
    (folder / "deployments").mkdir()
    (folder / "deployments/prefect.yaml").write_text(yaml.safe_dump({**shipped, "deployments": [deployment]}))
    command = start("deploy")
    assert command.wait(120) == 0, command.communicate()


def start_deployed(api: str, deployment: str, **parameters: Any) -> str:
    """Create a run of the deployment `FLOW/NAME`, once it is there; return the flow run's id."""

    def found() -> str | None:
        try:
            return str(ask(api, f"/deployments/name/{deployment}")["id"])
        except urllib.error.HTTPError:
            return None

    path = f"/deployments/{wait_for('the deployment', found)}/create_flow_run"
    return str(ask(api, path, {"state": {"type": "SCHEDULED"}, "parameters": parameters})["id"])


def set_state(api: str, flow_run_id: str, kind: str) -> None:
    """Set a flow run's state, as the buttons of the Prefect UI do."""
    ask(api, f"/flow_runs/{flow_run_id}/set_state", {"state": {"type": kind, "name": kind.capitalize()}})


def wait_for_state(api: str, flow_run_id: str, *types: str, seconds: float = 120) -> dict[str, Any]:
    """Return the flow run once it is in one of these states. Fail with its states and logs after so many seconds."""

    def reached() -> dict[str, Any] | None:
        run = dict(ask(api, f"/flow_runs/{flow_run_id}"))
        return run if run["state_type"] in types else None

    try:
        return dict(wait_for(f"{flow_run_id} in {types}", reached, seconds))
    except pytest.fail.Exception:
        print("its states:", states_of(api, flow_run_id))
        newest = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "sort": "TIMESTAMP_DESC", "limit": 50}
        print("its last logs, newest first:", *(log["message"] for log in ask(api, "/logs/filter", newest)), sep="\n")
        raise


def states_of(api: str, flow_run_id: str) -> list[str]:
    """Return all states that a flow run has had, in order."""
    states = ask(api, f"/flow_run_states/?flow_run_id={flow_run_id}")
    return [state["type"] for state in sorted(states, key=lambda state: state["timestamp"])]


def kill_served_flow(flow_run_id: str) -> None:
    """Kill the process in which Prefect's runner runs a flow run, and wait until all that it started is gone."""
    started = processes_with("PREFECT__FLOW_RUN_ID", flow_run_id)
    flows = [pid for pid, command in started.items() if "prefect.engine" in command]
    assert flows
    for pid in flows:
        kill(pid)
    # The server may start the run again meanwhile, with other processes.
    wait_for(
        "the end of what the killed flow started",
        lambda: not started.keys() & processes_with("PREFECT__FLOW_RUN_ID", flow_run_id).keys(),
        60,
    )


def newest_flow_run(api: str) -> dict[str, Any]:
    return dict(ask(api, "/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})[0])


def wait_for_task_runs(api: str, flow_run_id: str, *states: str) -> None:
    """Wait until the states of a flow run's task runs are these: the server reads them from events, a little later."""
    wait_for(f"the task runs to be {states}", lambda: set(task_runs(api, flow_run_id).values()) == set(states), 60)


def task_runs(api: str, flow_run_id: str) -> dict[str, str]:
    """Return the states of a flow run's task runs, by time and task."""
    body = {"flow_runs": {"id": {"any_": [flow_run_id]}}, "sort": "EXPECTED_START_TIME_ASC"}
    return {
        f"{run['expected_start_time']} {run['name']}": run["state_type"] for run in ask(api, "/task_runs/filter", body)
    }
