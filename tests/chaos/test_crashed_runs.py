"""Deployments' runs whose process dies: the server notices, and starts the same run again."""

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.automations import FOLDER, apply_automations
from tests.chaos.conftest import (
    assert_exact,
    assert_resumed,
    kill_flow,
    parts,
    settled_rows,
    start_deployed,
    states_of,
    task_runs,
    wait_for_parts,
    wait_for_state,
)
from tests.chaos.runs import Start, traced_rows, wait_for
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos


def receipt_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "out/_overnight/all/receipt.json").read_text()))


def test_a_run_whose_process_is_killed_starts_again_and_repeats_no_settled_work(
    start: Start, deployable_job: Path, prefect_api: str
) -> None:
    server = start("serve", "job.yaml")
    run = start_deployed(prefect_api, deployable_job)
    wait_for_parts(server, deployable_job, random.randint(2, 5))
    kill_flow(run)
    wait_for("a second start", lambda: ask(prefect_api, f"/flow_runs/{run}")["run_count"] == 2)
    settled, traced = settled_rows(deployable_job), traced_rows(deployable_job)
    wait_for_state(prefect_api, run, "COMPLETED", "FAILED", seconds=240)
    assert states_of(prefect_api, run)[-1] == "COMPLETED"
    assert states_of(prefect_api, run).count("CRASHED") == 1
    receipt = receipt_of(deployable_job)
    assert_exact(receipt, deployable_job)
    assert_resumed(receipt, deployable_job, settled, traced)
    states = task_runs(prefect_api, run)
    assert set(states.values()) == {"COMPLETED", "CRASHED"}, states


def test_a_run_that_dies_at_every_start_fails_after_max_attempts(
    start: Start, deployable_job: Path, prefect_api: str
) -> None:
    job = yaml.safe_load((deployable_job / "job.yaml").read_text())
    (deployable_job / "job.yaml").write_text(yaml.safe_dump(job | {"max_attempts": 2}))
    start("serve", "job.yaml")
    run = start_deployed(prefect_api, deployable_job)
    for number in (1, 2):
        wait_for("a start", lambda n=number: ask(prefect_api, f"/flow_runs/{run}")["run_count"] == n)
        kill_flow(run)
    failed = wait_for_state(prefect_api, run, "FAILED", "COMPLETED")
    assert failed["run_count"] == 3
    assert "died 2 times" in failed["state"]["message"]
    assert "max_attempts of the job is 2" in failed["state"]["message"]


def test_a_run_whose_machine_died_is_noticed_by_its_silence_and_taken_up_by_another_worker(
    start: Start, deployable_job: Path, prefect_api: str, tmp_path: Path
) -> None:
    folder = deployable_job / "deployments"
    folder.mkdir()
    shipped = yaml.safe_load((FOLDER.parent / "prefect.yaml").read_text())
    parameters = {"job": str(deployable_job / "job.yaml")}
    deployment = {**shipped["deployments"][0], "name": "slow", "parameters": parameters, "schedules": []}
    (folder / "prefect.yaml").write_text(yaml.safe_dump({**shipped, "deployments": [deployment]}))
    deploy = start("deploy")
    assert deploy.wait(120) == 0, deploy.communicate()
    impatient = tmp_path / "automations"  # the shipped one waits for four heartbeats
    impatient.mkdir()
    silent = (FOLDER / "silent-run-has-crashed.yaml").read_text()
    (impatient / "silent.yaml").write_text(silent.replace("within: 120", "within: 40"))
    assert list(apply_automations(impatient).values()) == ["changed"]
    machine = start("worker")
    run = start_deployed(prefect_api, deployable_job)
    wait_for_parts(machine, deployable_job, random.randint(2, 5))
    os.killpg(machine.pid, signal.SIGKILL)  # first the worker, so that nobody is left to report it
    kill_flow(run)
    wait_for_state(prefect_api, run, "CRASHED", "SCHEDULED", seconds=120)
    settled, traced = settled_rows(deployable_job), traced_rows(deployable_job)  # Ray's processes have ended by now
    start("worker")
    wait_for_state(prefect_api, run, "COMPLETED", "FAILED", seconds=240)
    assert states_of(prefect_api, run)[-1] == "COMPLETED"
    receipt = receipt_of(deployable_job)
    assert_exact(receipt, deployable_job)
    assert_resumed(receipt, deployable_job, settled, traced)
    assert len(parts(deployable_job)) == 0
