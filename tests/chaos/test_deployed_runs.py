"""Deployments' runs whose process or machine dies, and that somebody cancels: the server starts the same run again."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from overnight.flows.deploy.automations import FOLDER, apply_automations
from tests.chaos.conftest import (
    assert_exact,
    assert_resumed,
    deploy,
    kill_served_flow,
    parts,
    receipt_of,
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
    end,
    set_pace,
    started_runs,
    traced_rows,
    wait_for_end,
)
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos
SECONDS = 30  # in which a cancelled run must have ended
UNDER_WAY = 176  # rows that were tried, or are with the two workers' models or behind them and in no part yet
SLOWLY = 0.05  # seconds a row, so that kills and Cancel come before the end, and the model is slower than the writer


def apply_impatient(folder: Path, name: str, seconds: int, deployment: str = "") -> None:
    """Apply a shipped automation that waits for seconds instead of minutes, perhaps for one deployment only."""
    automation = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    automation["name"] = f"impatient-{name}"
    automation["trigger"]["within"] = seconds
    if deployment:
        automation["trigger"]["match_related"][1]["prefect.resource.name"] = deployment
    (folder / "automation.yaml").write_text(yaml.safe_dump(automation))
    assert apply_automations(folder) == {f"impatient-{name}": "created"}


def wait_for_moment(moments: Moments, what: str, process: Process, folder: Path) -> None:
    """Wait until two to five more parts are staged, and record the moment as `what`, which happens next."""
    wait_for_parts(process, folder, len(parts(folder)) + moments.number(2, 5))
    moments.record(what, len(parts(folder)))


@dataclass
class DeadMachine:
    """A machine that died under a run: its job's folder, the run, and a function that starts commands there."""

    folder: Path
    run: str
    start: Start


@pytest.fixture(scope="module")
def dead_machine(prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeadMachine]:
    """A worker that was killed together with its run. The server notices its silence while another test goes on."""
    folder = write_job(tmp_path_factory.mktemp("machine"))
    set_pace(folder, SLOWLY)
    apply_impatient(tmp_path_factory.mktemp("silent"), "silent-run-has-crashed", 60)
    with started_runs(folder, prefect_api) as start:
        deploy(start, folder, "slow")
        machine = start("worker")
        run = start_deployed(prefect_api, "batch-inference/slow")
        wait_for_moment(Moments("dead_machine"), "the machine killed", machine, folder)
        os.killpg(machine.pid, signal.SIGKILL)  # first the worker, so that nobody is left to report it
        kill_served_flow(run)
        yield DeadMachine(folder, run, start)


@pytest.mark.usefixtures("dead_machine")
def test_a_served_run_that_never_began_and_then_is_killed_is_started_again_each_time(
    tmp_path: Path, prefect_api: str, moments: Moments, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write_job(tmp_path, "served")
    set_pace(folder, SLOWLY)
    apply_impatient(tmp_path_factory.mktemp("lost"), "run-that-never-began-starts-again", 30, "served")
    with started_runs(folder, prefect_api) as start:
        taker = start("serve", "job.yaml")
        run = start_deployed(prefect_api, "batch-inference/served")
        wait_for_state(prefect_api, run, "PENDING")
        end(taker)
        lost = ask(prefect_api, f"/flow_runs/{run}")
        assert (lost["state_type"], lost["run_count"]) == ("PENDING", 0)
        wait_for_state(prefect_api, run, "SCHEDULED", seconds=90)

        server = start("serve", "job.yaml")
        wait_for_moment(moments, "the flow killed", server, folder)
        kill_served_flow(run)
        settled, traced = settled_rows(folder), traced_rows(folder)
        set_pace(folder, 0)
        wait_for_state(prefect_api, run, "COMPLETED", "FAILED", seconds=240)
    assert [states_of(prefect_api, run).count(state) for state in ("CRASHED", "COMPLETED")] == [1, 1]
    receipt = receipt_of(folder)
    assert_exact(receipt, folder)
    assert_resumed(receipt, folder, settled, traced)


def test_a_run_whose_machine_died_is_taken_up_by_another(dead_machine: DeadMachine, prefect_api: str) -> None:
    folder, run = dead_machine.folder, dead_machine.run
    settled, traced = settled_rows(folder), traced_rows(folder)
    wait_for_state(prefect_api, run, "CRASHED", "SCHEDULED")
    dead_machine.start("worker")
    set_pace(folder, 0)
    wait_for_state(prefect_api, run, "COMPLETED", "FAILED", "CRASHED", seconds=240)
    assert states_of(prefect_api, run)[-1] == "COMPLETED"
    assert states_of(prefect_api, run).count("CRASHED") == 1
    receipt = receipt_of(folder)
    assert_exact(receipt, folder)
    assert_resumed(receipt, folder, settled, traced)
    assert parts(folder) == []
    assert "RUNNING" not in task_runs(prefect_api, run).values()


@pytest.mark.nightly  # a third start of the same job; that a worker leaves the end to Prefect has a plain test
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
