"""A slow job in a folder of its own, what a server and a disk say of its runs, and what must be true in the end."""

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.chaos.runs import Process, Start, started_runs, traced_rows, wait_for, wait_until, write_model
from tests.flows.conftest import run_job
from tests.prefect_api import ask

__all__ = ["run_job"]  # a fixture here as well

ROWS, PER_FILE = 1200, 100
TRIED_TWICE = 16  # a few rows are tried before the stream


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for i in range(ROWS // PER_FILE):
        rows = range(i * PER_FILE, (i + 1) * PER_FILE)
        pq.write_table(pa.table({"x": rows}), tmp_path / f"in/{i:02d}.parquet", row_group_size=40)
    write_model(tmp_path)
    job = {
        "name": "slow",
        "source": {"kind": "parquet", "path": "in"},
        "preprocess": [{"kind": "filter_rows", "expression": "x % 10 != 3"}],
        "inference": [{"kind": "python", "target": "slow_model:Slow", "batch_size": 20}],
        "sink": {"kind": "parquet", "path": "out", "rows_per_part": 40},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    return tmp_path


@pytest.fixture
def start(prefect_api: str, job_folder: Path) -> Iterator[Start]:
    """Starts `overnight run`, or what else is given, in `job_folder`; it ends with the test."""
    with started_runs(job_folder, prefect_api) as start:
        yield start


def parts(folder: Path) -> list[Path]:
    return list((folder / "out/_overnight/all/generations").glob("*/parts/*.part"))


def wait_for_parts(process: Process, folder: Path, count: int) -> None:
    """Until so many parts are staged. Fails if the run ends before."""
    wait_until(lambda: len(parts(folder)) >= count, process)


def settled_rows(folder: Path) -> int:
    """Rows written in staged parts."""
    return sum(pq.read_metadata(part).num_rows for part in parts(folder))


def assert_exact(receipt: dict[str, Any], folder: Path) -> None:
    """The table is row for row what an undisturbed run gives."""
    rows = [row for file in receipt["files"] for row in pq.read_table(folder / "out" / file).to_pylist()]
    assert sorted((row["x"], row["twice"], row["row_id"]) for row in rows) == sorted(
        (x, 2 * x, f"{x // PER_FILE:02d}.parquet#{x % PER_FILE}") for x in range(ROWS) if x % 10 != 3
    )
    assert receipt["rows_in"] == receipt["rows_out"] + receipt["rows_filtered"]


def assert_resumed(receipt: dict[str, Any], folder: Path, settled: int, traced: int) -> None:
    """The last attempt took up the `settled` rows; the model, which had seen `traced`, then saw only the rest."""
    assert receipt["rows_resumed"] >= settled > 0
    assert traced_rows(folder) - traced <= ROWS * 9 // 10 - settled + TRIED_TWICE


@pytest.fixture
def deployable_job(job_folder: Path) -> Path:
    """The job of `job_folder` as a deployment takes it, with full paths."""
    job = yaml.safe_load((job_folder / "job.yaml").read_text())
    job["source"]["path"], job["sink"]["path"] = str(job_folder / "in"), str(job_folder / "out")
    (job_folder / "job.yaml").write_text(yaml.safe_dump(job))
    return job_folder


def start_deployed(api: str, folder: Path) -> str:
    """Asks for a run of the deployment `batch-inference/slow`, once it is that of `folder`; the flow run's id."""

    def deployment() -> str | None:
        try:
            found = ask(api, "/deployments/name/batch-inference/slow")
        except urllib.error.HTTPError:
            return None
        return str(found["id"]) if found["parameters"]["job"] == str(folder / "job.yaml") else None

    found = wait_for("the deployment", deployment)
    return str(ask(api, f"/deployments/{found}/create_flow_run", {"state": {"type": "SCHEDULED"}})["id"])


def wait_for_state(api: str, flow_run_id: str, *types: str, seconds: float = 120) -> dict[str, Any]:
    def reached() -> dict[str, Any] | None:
        run = dict(ask(api, f"/flow_runs/{flow_run_id}"))
        return run if run["state_type"] in types else None

    try:
        return dict(wait_for(f"{flow_run_id} in {types}", reached, seconds))
    except pytest.fail.Exception:
        print("its states:", states_of(api, flow_run_id))
        told = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "sort": "TIMESTAMP_DESC", "limit": 50}
        print("its last logs, newest first:", *(log["message"] for log in ask(api, "/logs/filter", told)), sep="\n")
        raise


def states_of(api: str, flow_run_id: str) -> list[str]:
    """All states that a flow run has had, in order."""
    states = ask(api, f"/flow_run_states/?flow_run_id={flow_run_id}")
    return [state["type"] for state in sorted(states, key=lambda state: state["timestamp"])]


def kill_flow(flow_run_id: str) -> None:
    """Kills the process in which Prefect's runner runs a flow run."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                if "prefect.engine" in (process / "cmdline").read_text() and (
                    f"PREFECT__FLOW_RUN_ID={flow_run_id}\0" in (process / "environ").read_text()
                ):
                    os.kill(int(process.name), signal.SIGKILL)
                    return
            except (OSError, UnicodeDecodeError):
                continue
    pytest.fail(f"no process of the flow run {flow_run_id}")


def newest_flow_run(api: str) -> dict[str, Any]:
    return dict(ask(api, "/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})[0])


def task_runs(api: str, flow_run_id: str) -> dict[str, str]:
    """The states of a flow run's task runs, by task and time."""
    body = {"flow_runs": {"id": {"any_": [flow_run_id]}}, "sort": "EXPECTED_START_TIME_ASC"}
    return {
        f"{run['expected_start_time']} {run['name']}": run["state_type"] for run in ask(api, "/task_runs/filter", body)
    }


def ray_processes(title: str, trace: Path) -> list[int]:
    """The processes of the run under test that Ray titled `ray::...TITLE...`, told by their environment."""
    return [pid for pid, command in _processes(trace) if command.startswith("ray::") and title in command]


def forked_processes(trace: Path) -> list[int]:
    """Those of the run under test that were forked of its fork server."""
    found = [pid for pid, command in _processes(trace) if "tasks.fork_server" in command]
    return [pid for pid in found if psutil.Process(pid).ppid() in found]


def _processes(trace: Path) -> Iterator[tuple[int, str]]:
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                command, environment = ((process / name).read_text() for name in ("cmdline", "environ"))
            except (OSError, UnicodeDecodeError):
                continue
            if f"TRACE={trace}\0" in environment:
                yield int(process.name), command


def ray_process(title: str, trace: Path) -> int:
    """The only one of them."""
    [found] = ray_processes(title, trace)
    return found
