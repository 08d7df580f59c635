"""Runs that somebody cancels: Cancelled everywhere, nothing left behind, and the next run takes up what was staged."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.conftest import (
    Start,
    ask,
    assert_exact,
    assert_resumed,
    finish,
    newest_flow_run,
    settled_rows,
    task_runs,
    traced_rows,
    wait_for_parts,
)

pytestmark = pytest.mark.chaos
SECONDS = 30  # in which a cancelled run must have ended
ENDED = {"COMPLETED", "CANCELLED"}


def ctrl_c(process: subprocess.Popen[str], _: str) -> None:
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does


def interrupt(process: subprocess.Popen[str], _: str) -> None:
    os.kill(process.pid, signal.SIGINT)


def terminate(process: subprocess.Popen[str], _: str) -> None:
    os.kill(process.pid, signal.SIGTERM)


def press_cancel(_: subprocess.Popen[str], api: str) -> None:
    state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    ask(api, f"/flow_runs/{newest_flow_run(api)['id']}/set_state", state)  # as the UI does


@pytest.mark.parametrize("cancel", [ctrl_c, interrupt, terminate, press_cancel])
def test_a_cancelled_run_ends_as_cancelled_and_the_next_takes_it_up(
    start: Start, job_folder: Path, prefect_api: str, cancel: Callable[[subprocess.Popen[str], str], None]
) -> None:
    process = start()
    wait_for_parts(process, job_folder, random.randint(2, 5))
    began = time.monotonic()
    cancel(process, prefect_api)
    stdout, stderr = process.communicate(timeout=60)
    assert time.monotonic() - began < SECONDS
    assert process.returncode == 1
    told = json.loads(stdout)
    assert (told["status"], told["stage"], told["error_type"]) == ("cancelled", "write", "RunCancelled")
    assert "Traceback" not in stderr
    assert "cancelled: slow/all in write" in stderr
    flow_run = newest_flow_run(prefect_api)
    assert flow_run["state_type"] == "CANCELLED"
    states = task_runs(prefect_api, flow_run["id"])
    assert set(states.values()) == ENDED, states
    history = [state["type"] for state in ask(prefect_api, f"/flow_run_states/?flow_run_id={flow_run['id']}")]
    assert "CRASHED" not in history
    assert not (job_folder / "out/_overnight/all/failure.json").exists()
    settled, traced = settled_rows(job_folder), traced_rows(job_folder)
    receipt = finish(start())
    assert_exact(receipt, job_folder)
    assert_resumed(receipt, job_folder, settled, traced)
