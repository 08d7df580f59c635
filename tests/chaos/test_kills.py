"""Processes that die in the middle of a run: the next takes up what was staged, and the table is as if undisturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

pytestmark = pytest.mark.chaos

ROWS, PER_FILE = 1200, 100
MODEL = '''
import os
import time


class Slow:
    """Doubles x, taking its time, and leaves a trace of every batch that it saw."""

    def __call__(self, batch):
        time.sleep(0.004 * len(batch["x"]))
        with open(os.environ["TRACE"], "a") as trace:
            trace.write("".join(f"{x}\\n" for x in batch["x"]))
        return {"twice": batch["x"] * 2}
'''


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for i in range(ROWS // PER_FILE):
        rows = range(i * PER_FILE, (i + 1) * PER_FILE)
        pq.write_table(pa.table({"x": rows}), tmp_path / f"in/{i:02d}.parquet", row_group_size=40)
    (tmp_path / "slow_model.py").write_text(MODEL)
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
def start(prefect_api: str, job_folder: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts `overnight run` in a process group of its own, which ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        environment = {**os.environ, "PREFECT_API_URL": prefect_api, "TRACE": str(job_folder / "trace")}
        command = [sys.executable, "-c", "from flows.cli import main; main()", "run", "job.yaml", "--json"]
        started.append(
            subprocess.Popen(
                command,
                cwd=job_folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        process.communicate()


def parts(folder: Path) -> list[Path]:
    return list((folder / "out/_overnight/all/generations").glob("*/parts/*.part"))


def wait_for_parts(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    """Until so many parts are staged. Fails if the run ends before."""
    deadline = time.monotonic() + 120
    while len(parts(folder)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no parts in time"
        time.sleep(0.05)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    return dict(json.loads(stdout))


def test_a_killed_flow_is_taken_up_where_its_staged_parts_end(
    start: Callable[[], subprocess.Popen[str]], job_folder: Path
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    staged = 0
    for _ in range(2):
        process = start()
        wait_for_parts(process, job_folder, staged + chance.randint(2, 5))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        time.sleep(3)  # Ray's processes notice that their driver is gone
        staged = len(parts(job_folder))
    settled = sum(pq.read_metadata(part).num_rows for part in parts(job_folder))
    done_before = len((job_folder / "trace").read_text().splitlines())
    receipt = finish(start())
    rows = [row for file in receipt["files"] for row in pq.read_table(job_folder / "out" / file).to_pylist()]
    assert sorted((row["x"], row["twice"], row["row_id"]) for row in rows) == sorted(
        (x, 2 * x, f"{x // PER_FILE:02d}.parquet#{x % PER_FILE}") for x in range(ROWS) if x % 10 != 3
    )
    assert receipt["rows_in"] == receipt["rows_out"] + receipt["rows_filtered"]
    assert receipt["rows_resumed"] >= settled
    done_last = len((job_folder / "trace").read_text().splitlines()) - done_before
    sample = 16  # a few rows are tried twice before the stream
    assert done_last <= ROWS * 9 // 10 - settled + sample


def ray_process(title: str, trace: Path) -> int:
    """The process of the run under test that Ray named `ray::TITLE`, told by its environment."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                if f"ray::{title}" in (process / "cmdline").read_text() and (
                    f"TRACE={trace}\0" in (process / "environ").read_text()
                ):
                    return int(process.name)
            except (OSError, UnicodeDecodeError):
                continue
    pytest.fail(f"no process ray::{title}")


@pytest.mark.parametrize("title", ["write", "MapWorker(MapBatches(Worker))"])
def test_a_killed_worker_costs_no_row_and_no_run(
    start: Callable[[], subprocess.Popen[str]], job_folder: Path, prefect_api: str, title: str
) -> None:
    process = start()
    wait_for_parts(process, job_folder, random.randint(2, 5))
    os.kill(ray_process(title, job_folder / "trace"), signal.SIGKILL)
    receipt = finish(process)
    rows = [row for file in receipt["files"] for row in pq.read_table(job_folder / "out" / file).to_pylist()]
    assert sorted((row["x"], row["twice"]) for row in rows) == [(x, 2 * x) for x in range(ROWS) if x % 10 != 3]
    if title == "write":
        assert receipt["rows_resumed"] > 0
        assert "CRASHED" in task_states(prefect_api)


def task_states(prefect_api: str) -> list[str]:
    """The states of the newest task runs in the server."""
    body = json.dumps({"sort": "EXPECTED_START_TIME_DESC", "limit": 12}).encode()
    request = urllib.request.Request(
        f"{prefect_api}/task_runs/filter", data=body, headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return [run["state_type"] for run in json.load(answer)]
