"""Runs that somebody cancels: Cancelled everywhere, nothing left behind, and the next run takes up what was staged."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.chaos.conftest import (
    assert_exact,
    assert_resumed,
    lease_is_held,
    newest_flow_run,
    parts,
    set_state,
    settled_rows,
    states_of,
    wait_for_parts,
    wait_for_task_runs,
)
from tests.chaos.moments import Moments
from tests.chaos.runs import Process, Start, finish, set_pace, traced_rows, wait_for_end
from tests.flows.conftest import RunJob

pytestmark = pytest.mark.chaos
SECONDS = 30  # in which a cancelled run must have ended
UNDER_WAY = 136  # rows that were tried, or are with the model or behind it and in no part, when a run is cancelled


def cancel(way: str, process: Process, api: str) -> None:
    """Cancel a run in one of these ways; a terminal sends Ctrl-C to the whole group."""
    if way == "Ctrl-C":
        os.killpg(process.pid, signal.SIGINT)
    elif way == "SIGTERM":
        os.kill(process.pid, signal.SIGTERM)
    else:
        set_state(api, newest_flow_run(api)["id"], "CANCELLING")


def test_each_way_to_cancel_ends_a_run_as_cancelled_and_the_next_run_takes_it_up(
    start: Start, job_folder: Path, prefect_api: str, moments: Moments, run_job: RunJob
) -> None:
    """A second Ctrl-C ends the process where it is."""
    set_pace(job_folder, 0.02)  # so that Cancel, for which a run looks every two seconds, comes before the end
    for way in moments.in_order(["Ctrl-C", "SIGTERM", "Cancel in the UI"]):
        process, settled, traced = start(OVERNIGHT_FORK_SERVER=""), settled_rows(job_folder), traced_rows(job_folder)
        wait_for_moment(process, job_folder, moments, way)
        cancel(way, process, prefect_api)
        assert_cancelled(process, job_folder, prefect_api)
        new = settled_rows(job_folder) - settled
        assert traced_rows(job_folder) - traced <= new + UNDER_WAY

    process = start()
    wait_for_moment(process, job_folder, moments, "two times Ctrl-C")
    cancel("Ctrl-C", process, prefect_api)
    time.sleep(0.2)
    cancel("Ctrl-C", process, prefect_api)
    assert process.wait(10) == -signal.SIGINT
    wait_for_end(process)

    set_pace(job_folder, 0)
    settled, traced = settled_rows(job_folder), traced_rows(job_folder)
    receipt = run_job(job_folder / "job.yaml")
    assert_exact(receipt, job_folder)
    assert_resumed(receipt, job_folder, settled, traced)


def wait_for_moment(process: Process, folder: Path, moments: Moments, what: str) -> None:
    wait_for_parts(process, folder, len(parts(folder)) + moments.number(1, 3))
    moments.record(what, len(parts(folder)))


def assert_cancelled(process: Process, folder: Path, api: str) -> None:
    began = time.monotonic()
    told = finish(process, code=1)
    assert time.monotonic() - began < SECONDS
    assert (told["status"], told["stage"], told["error_type"]) == ("cancelled", "infer", "RunCancelled")
    flow_run = newest_flow_run(api)
    assert flow_run["state_type"] == "CANCELLED"
    wait_for_task_runs(api, flow_run["id"], "COMPLETED", "CANCELLED")
    assert "CRASHED" not in states_of(api, flow_run["id"])
    assert not lease_is_held(folder)
    assert not (folder / "out/_overnight/all/failure.json").exists()
    wait_for_end(process, SECONDS)
