"""Deployments' runs whose process or machine dies, and that somebody cancels: the server starts the same run again."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from overnight.flows.deploy.automations import FOLDER, apply_automations
from tests.chaos.conftest import (
    assert_exact,
    assert_resumed,
    deploy,
    kill_served_flow,
    parts,
    receipt_of,
    set_state,
    settled_rows,
    start_deployed,
    states_of,
    task_runs,
    wait_for_parts,
    wait_for_state,
    write_job,
)
from tests.chaos.moments import Moments
from tests.chaos.runs import (
    SIGINT_NOT_IGNORED,
    Process,
    Start,
    set_pace,
    started_runs,
    traced_rows,
    wait_for,
    wait_for_end,
)
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos
SECONDS = 30  # in which a cancelled run must have ended
UNDER_WAY = 176  # rows that were tried, or are with the two workers' models or behind them and in no part yet
SLOWLY = 0.05  # seconds a row, so that kills and Cancel come before the end, and the model is slower than the writer


@dataclass
class DeadMachine:
    """A machine that died under a run: its job's folder, the run, and a function that starts commands there."""

    folder: Path
    run: str
    start: Start
    settled: int
    traced: int


@pytest.fixture(scope="module")
def dead_machine(prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeadMachine]:
    """A worker that was killed together with its run. The server notices its silence while another test goes on."""
    moments = Moments("dead_machine")
    folder = write_job(tmp_path_factory.mktemp("machine"), retries={"attempts": 2})
    set_pace(folder, SLOWLY)
    impatient = tmp_path_factory.mktemp("automations")  # the shipped one waits for four heartbeats
    silent = (FOLDER / "silent-run-has-crashed.yaml").read_text()
    silent = silent.replace("within: 120", "within: 60").replace("name: overnight-", "name: impatient-")
    (impatient / "silent.yaml").write_text(silent)
    with started_runs(folder, prefect_api) as start:
        deploy(start, folder, "slow")
        assert list(apply_automations(impatient).values()) == ["created"]
        machine = start("worker")
        run = start_deployed(prefect_api, "batch-inference/slow")
        wait_for_moment(moments, "the machine killed", machine, folder)
        os.killpg(machine.pid, signal.SIGKILL)  # first the worker, so that nobody is left to report it
        kill_served_flow(run)
        yield DeadMachine(folder, run, start, settled_rows(folder), traced_rows(folder))


def wait_for_moment(moments: Moments, what: str, process: Process, folder: Path) -> None:
    """Wait until two to five more parts are staged, and record the moment as `what`, which happens next."""
    wait_for_parts(process, folder, len(parts(folder)) + moments.number(2, 5))
    moments.record(what, len(parts(folder)))


@pytest.mark.usefixtures("dead_machine")
def test_a_served_run_that_is_killed_then_cancelled_then_scheduled_again_repeats_no_settled_work(
    tmp_path: Path, prefect_api: str, moments: Moments
) -> None:
    folder = write_job(tmp_path, "served")
    set_pace(folder, SLOWLY)
    with started_runs(folder, prefect_api) as start:
        server = start("serve", "job.yaml")
        run = start_deployed(prefect_api, "batch-inference/served")
        wait_for_moment(moments, "the flow killed", server, folder)
        kill_served_flow(run)
        settled, traced = settled_rows(folder), traced_rows(folder)
        wait_for("a second start", lambda: ask(prefect_api, f"/flow_runs/{run}")["run_count"] == 2)
        assert states_of(prefect_api, run).count("CRASHED") == 1

        wait_for_moment(moments, "Cancel pressed", server, folder)
        set_state(prefect_api, run, "CANCELLING")
        wait_for_state(prefect_api, run, "CANCELLED", seconds=SECONDS)
        wait_for("the partition to be given back", lambda: not lease_is_held(folder), SECONDS)
        assert set(task_runs(prefect_api, run).values()) == {"COMPLETED", "CRASHED", "CANCELLED"}
        assert states_of(prefect_api, run).count("CRASHED") == 1
        assert traced_rows(folder) - traced <= settled_rows(folder) - settled + UNDER_WAY

        settled, traced = settled_rows(folder), traced_rows(folder)
        set_pace(folder, 0)
        set_state(prefect_api, run, "SCHEDULED")
        wait_for_state(prefect_api, run, "COMPLETED", "FAILED", "CRASHED", seconds=240)
        assert states_of(prefect_api, run)[-1] == "COMPLETED"
        assert states_of(prefect_api, run).count("CRASHED") == 1
        receipt = receipt_of(folder)
        assert_exact(receipt, folder)
        assert_resumed(receipt, folder, settled, traced)
        assert "RUNNING" not in task_runs(prefect_api, run).values()


def lease_is_held(folder: Path) -> bool:
    (newest,) = (folder / "out/_overnight/all/lease").iterdir()
    return not json.loads(newest.read_text())["released"]


def test_a_run_whose_machine_died_is_taken_up_by_another_and_fails_after_its_attempts_until_somebody_retries_it(
    dead_machine: DeadMachine, prefect_api: str, moments: Moments
) -> None:
    folder, run = dead_machine.folder, dead_machine.run
    wait_for_state(prefect_api, run, "CRASHED", "SCHEDULED", seconds=120)
    assert states_of(prefect_api, run).count("CRASHED") == 1
    worker = dead_machine.start("worker")
    wait_for_moment(moments, "the flow killed", worker, folder)
    kill_served_flow(run)
    settled, traced = settled_rows(folder), traced_rows(folder)
    assert settled > dead_machine.settled > 0
    assert traced - dead_machine.traced <= settled - dead_machine.settled + UNDER_WAY
    failed = wait_for_state(prefect_api, run, "FAILED", "COMPLETED")
    assert failed["run_count"] == 3
    assert "died 2 times" in failed["state"]["message"]
    assert "retries.attempts of the job is 2" in failed["state"]["message"]

    set_pace(folder, 0)
    set_state(prefect_api, run, "SCHEDULED")
    wait_for_state(prefect_api, run, "COMPLETED", "CRASHED", seconds=240)
    assert states_of(prefect_api, run)[-1] == "COMPLETED"
    receipt = receipt_of(folder)
    assert_exact(receipt, folder)
    assert_resumed(receipt, folder, settled, traced)
    assert len(parts(folder)) == 0
    assert set(task_runs(prefect_api, run).values()) == {"COMPLETED", "CRASHED"}


@pytest.mark.nightly
def test_a_run_whose_worker_is_told_to_stop_goes_on_with_the_next_worker(
    tmp_path: Path, prefect_api: str, moments: Moments
) -> None:
    folder = write_job(tmp_path, "stopped")
    set_pace(folder, SLOWLY)
    with started_runs(folder, prefect_api) as start:
        deploy(start, folder, "stopped")
        worker = start("worker", before=SIGINT_NOT_IGNORED)
        run = start_deployed(prefect_api, "batch-inference/stopped")
        wait_for_moment(moments, "the worker stopped", worker, folder)
        worker.terminate()
        wait_for_end(worker, SECONDS)
        settled, traced = settled_rows(folder), traced_rows(folder)

        set_pace(folder, 0)
        start("worker")
        wait_for_state(prefect_api, run, "COMPLETED", "FAILED", "CANCELLED", seconds=240)
        assert states_of(prefect_api, run)[-1] == "COMPLETED"
        receipt = receipt_of(folder)
        assert_exact(receipt, folder)
        assert_resumed(receipt, folder, settled, traced)
