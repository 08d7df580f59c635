"""Runs that somebody cancels: Cancelled everywhere, nothing left behind, and the next run takes up what was staged."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.conftest import (
    assert_exact,
    assert_resumed,
    newest_flow_run,
    settled_rows,
    start_deployed,
    states_of,
    task_runs,
    wait_for_parts,
    wait_for_state,
)
from tests.chaos.runs import Start, finish, traced_rows, wait_for
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos
SECONDS = 30  # in which a cancelled run must have ended
SLOWLY = {"SECONDS_PER_ROW": "0.02"}  # so that Cancel, which is asked for every two seconds, comes before the end
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


def lease_is_held(folder: Path) -> bool:
    (newest,) = (folder / "out/_overnight/all/lease").iterdir()
    return not json.loads(newest.read_text())["released"]


@pytest.mark.parametrize("cancel", [ctrl_c, interrupt, terminate, press_cancel])
def test_a_cancelled_run_ends_as_cancelled_and_the_next_takes_it_up(
    start: Start, job_folder: Path, prefect_api: str, cancel: Callable[[subprocess.Popen[str], str], None]
) -> None:
    process = start(**SLOWLY)
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
    assert not lease_is_held(job_folder)
    assert not (job_folder / "out/_overnight/all/failure.json").exists()
    settled, traced = settled_rows(job_folder), traced_rows(job_folder)
    receipt = finish(start())
    assert_exact(receipt, job_folder)
    assert_resumed(receipt, job_folder, settled, traced)


def test_a_second_ctrl_c_ends_the_process_where_it_is(start: Start, job_folder: Path) -> None:
    process = start(**SLOWLY)
    wait_for_parts(process, job_folder, 1)
    ctrl_c(process, "")
    time.sleep(0.2)
    ctrl_c(process, "")
    assert process.wait(10) == -signal.SIGINT


def test_a_run_of_serve_is_cancelled_from_the_ui(start: Start, deployable_job: Path, prefect_api: str) -> None:
    server = start("serve", "job.yaml", **SLOWLY)
    run = start_deployed(prefect_api, deployable_job)
    wait_for_parts(server, deployable_job, random.randint(2, 5))
    ask(prefect_api, f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})
    wait_for_state(prefect_api, run, "CANCELLED", seconds=SECONDS)
    wait_for("the partition to be given back", lambda: not lease_is_held(deployable_job), SECONDS)
    states = task_runs(prefect_api, run)
    assert set(states.values()) == ENDED, states
    assert "CRASHED" not in states_of(prefect_api, run)
    settled, traced = settled_rows(deployable_job), traced_rows(deployable_job)
    receipt = finish(start())
    assert_exact(receipt, deployable_job)
    assert_resumed(receipt, deployable_job, settled, traced)


@pytest.fixture
def cluster(job_folder: Path) -> Iterator[str]:
    """The address of a Ray cluster of two CPUs that outlives the runs."""
    folder = tempfile.mkdtemp(prefix="ray-")
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(2)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        port, client_port = (probe.getsockname()[1] for probe in sockets)
    options = {
        **{"port": port, "ray-client-server-port": client_port, "num-cpus": 2, "node-ip-address": "127.0.0.1"},
        **{"temp-dir": folder, "include-dashboard": "false", "min-worker-port": 0, "max-worker-port": 0},
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [f"--{name}={value}" for name, value in options.items()]
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "TRACE": str(job_folder / "trace")}
    environment["SECONDS_PER_ROW"] = "0.05"  # so that the run is there while its cluster is looked at
    environment.pop("RAY_ADDRESS", None)
    head = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    yield f"127.0.0.1:{port}"
    head.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        head.wait(30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(head.pid, signal.SIGKILL)
    head.wait()
    shutil.rmtree(folder, ignore_errors=True)


LEFT = """
import json, ray
ray.init("auto", log_to_driver=False, logging_level="ERROR")
free = ray.available_resources().get("CPU", 0) == ray.cluster_resources()["CPU"]
alive = {a["ActorClassName"] for a in ray._private.state.actors().values() if a["State"] == "ALIVE"}
# Ray Data's own: one each for a cluster, for ever, without a CPU.
alive -= {"_AutoscalingCoordinatorActor", "_StatsActor", "_UsageCollectionActor", "ActorLocationTracker"}
print(json.dumps({"free": free, "actors": sorted(alive)}))
"""


def left_on(address: str) -> dict[str, object]:
    """Whether all CPUs of a cluster are free, and which actors live on it."""
    environment = {**os.environ, "RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run([sys.executable, "-c", LEFT], env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_cancelled_run_leaves_nothing_on_a_shared_cluster(
    start: Start, job_folder: Path, prefect_api: str, cluster: str
) -> None:
    environment = {"RAY_ADDRESS": cluster, "RAY_AUTH_MODE": "disabled"}
    wait_for("the cluster", lambda: port_answers(cluster))
    process = start(**environment)
    wait_for_parts(process, job_folder, 2)
    assert left_on(cluster) != {"free": True, "actors": []}
    ctrl_c(process, prefect_api)
    process.communicate(timeout=SECONDS)
    assert newest_flow_run(prefect_api)["state_type"] == "CANCELLED"
    wait_for("all that it had to be free", lambda: left_on(cluster) == {"free": True, "actors": []}, SECONDS)


def port_answers(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
