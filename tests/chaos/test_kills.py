"""Processes that die in the middle of a run: the next takes up what was staged, and the table is as if undisturbed."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.chaos.conftest import (
    Start,
    ask,
    assert_exact,
    assert_resumed,
    finish,
    parts,
    ray_process,
    settled_rows,
    traced_rows,
    wait_for_parts,
)

pytestmark = pytest.mark.chaos


def test_a_killed_flow_is_taken_up_where_its_staged_parts_end(start: Start, job_folder: Path) -> None:
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
    settled, traced = settled_rows(job_folder), traced_rows(job_folder)
    receipt = finish(start())
    assert_exact(receipt, job_folder)
    assert_resumed(receipt, job_folder, settled, traced)


@pytest.mark.parametrize("title", ["write", "MapWorker(MapBatches(Worker))"])
def test_a_killed_worker_costs_no_row_and_no_run(start: Start, job_folder: Path, prefect_api: str, title: str) -> None:
    process = start()
    wait_for_parts(process, job_folder, random.randint(2, 5))
    os.kill(ray_process(title, job_folder / "trace"), signal.SIGKILL)
    receipt = finish(process)
    assert_exact(receipt, job_folder)
    if title == "write":
        assert receipt["rows_resumed"] > 0
        newest = ask(prefect_api, "/task_runs/filter", {"sort": "EXPECTED_START_TIME_DESC", "limit": 12})
        assert "CRASHED" in [run["state_type"] for run in newest]
