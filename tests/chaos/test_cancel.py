"""Runs that somebody cancels: Cancelled everywhere, nothing left behind, and the next run takes up what was staged."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.conftest import (
    assert_exact,
    assert_resumed,
    newest_flow_run,
    parts,
    set_state,
    settled_rows,
    states_of,
    wait_for_parts,
    wait_for_task_runs,
)
from tests.chaos.moments import Moments
from tests.chaos.runs import Process, Start, set_pace, traced_rows, wait_for_end
from tests.flows.conftest import RunJob

pytestmark = pytest.mark.chaos
SECONDS = 30  # in which a cancelled run must have ended


def ctrl_c(process: Process, _: str) -> None:
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does


def interrupt(process: Process, _: str) -> None:
    os.kill(process.pid, signal.SIGINT)


def terminate(process: Process, _: str) -> None:
    os.kill(process.pid, signal.SIGTERM)


def press_cancel(_: Process, api: str) -> None:
    set_state(api, newest_flow_run(api)["id"], "CANCELLING")


def lease_is_held(folder: Path) -> bool:
    (newest,) = (folder / "out/_overnight/all/lease").iterdir()
    return not json.loads(newest.read_text())["released"]


def test_each_way_to_cancel_ends_a_run_as_cancelled_and_the_next_run_takes_it_up(
    start: Start, job_folder: Path, prefect_api: str, moments: Moments, run_job: RunJob
) -> None:
    """A second Ctrl-C ends the process where it is."""
    set_pace(job_folder, 0.02)  # so that Cancel, for which a run looks every two seconds, comes before the end
    for cancel in moments.in_order([ctrl_c, interrupt, terminate, press_cancel]):
        process, settled, traced = start(OVERNIGHT_FORK_SERVER=""), settled_rows(job_folder), traced_rows(job_folder)
        await_parts(process, job_folder, moments, cancel.__name__)
        assert_cancelled(process, job_folder, prefect_api, cancel)
        new = settled_rows(job_folder) - settled
        assert new > 0
        assert traced_rows(job_folder) - traced <= new + UNDER_WAY

    process = start()
    await_parts(process, job_folder, moments, "two times ctrl_c")
    ctrl_c(process, "")
    time.sleep(0.2)
    ctrl_c(process, "")
    assert process.wait(10) == -signal.SIGINT
    wait_for_end(process)

    set_pace(job_folder, 0)
    settled, traced = settled_rows(job_folder), traced_rows(job_folder)
    receipt = run_job(job_folder / "job.yaml")
    assert_exact(receipt, job_folder)
    assert_resumed(receipt, job_folder, settled, traced)


UNDER_WAY = 136  # rows that were tried, or are with the model or behind it and in no part, when a run is cancelled


def await_parts(process: Process, folder: Path, moments: Moments, what: str) -> None:
    wait_for_parts(process, folder, len(parts(folder)) + moments.number(1, 3))
    moments.record(what, len(parts(folder)))


def assert_cancelled(process: Process, folder: Path, api: str, cancel: Callable[[Process, str], None]) -> None:
    began = time.monotonic()
    cancel(process, api)
    stdout, stderr = process.communicate(timeout=60)
    assert time.monotonic() - began < SECONDS
    assert process.returncode == 1
    told = json.loads(stdout)
    assert (told["status"], told["stage"], told["error_type"]) == ("cancelled", "infer", "RunCancelled")
    assert "Traceback" not in stderr
    assert "cancelled: slow/all in infer" in stderr
    flow_run = newest_flow_run(api)
    assert flow_run["state_type"] == "CANCELLED"
    wait_for_task_runs(api, flow_run["id"], "COMPLETED", "CANCELLED")
    assert "CRASHED" not in states_of(api, flow_run["id"])
    assert not lease_is_held(folder)
    assert not (folder / "out/_overnight/all/failure.json").exists()
    wait_for_end(process, SECONDS)
