"""Runs on a Ray cluster that they share: a cancelled one leaves nothing there, and a node that goes costs no row.

The cluster is a real one of two nodes on this machine.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from overnight.tasks.workers import fork_server
from tests.chaos.conftest import (
    ROWS,
    TRIED_TWICE,
    assert_exact,
    newest_flow_run,
    parts,
    set_state,
    settled_rows,
    wait_for_nodes,
    wait_for_parts,
)
from tests.chaos.moments import Moments
from tests.chaos.runs import MARK, Process, Start, end, finish, kill, set_pace, traced_rows, wait_for
from tests.conftest import WORKER_PATH

pytestmark = [pytest.mark.chaos, pytest.mark.nightly]
SECONDS = 30  # in which a cancelled run must have ended, and all that it had is free
UNDER_WAY = 8 * 40  # rows that are on their way through a node
NOTICE_SECONDS = 30  # from the notice to the end of a spot node


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of one node of two CPUs, in processes and a folder of its own."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", str(WORKER_PATH))  # where the nodes find the model
    monkeypatch.delenv(fork_server.ADDRESS)  # a cluster has none
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        found = Cluster()
        try:
            found.add_node(num_cpus=2, include_dashboard=False, temp_dir=folder)
            yield found
        finally:
            found.shutdown()


@pytest.fixture
def cluster(head: Cluster) -> Cluster:
    """The cluster with a second node of two CPUs."""
    head.add_node(num_cpus=2, node_ip_address="127.0.0.2")  # so that the run connects to the head
    return head


LEFT = """
import json, sys, time
import ray

ray.init("auto", log_to_driver=False, logging_level="ERROR")
# Ray Data's own: one each for a cluster, for ever, without a CPU.
OWN = {"_AutoscalingCoordinatorActor", "_StatsActor", "_UsageCollectionActor", "ActorLocationTracker"}
for _ in sys.stdin:
    free = ray.available_resources().get("CPU", 0) == ray.cluster_resources()["CPU"]
    alive = {a["ActorClassName"] for a in ray._private.state.actors().values() if a["State"] == "ALIVE"}
    print(json.dumps({"free": free, "actors": sorted(alive - OWN)}), flush=True)
"""
NOTHING = {"free": True, "actors": []}


@pytest.fixture
def observer(cluster: Cluster) -> Iterator[subprocess.Popen[str]]:
    """A process that tells for each line that it reads whether all CPUs of the cluster are free, and its actors."""
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    with subprocess.Popen(
        [sys.executable, "-c", LEFT], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def left_on(observer: subprocess.Popen[str]) -> dict[str, object]:
    assert observer.stdin is not None
    assert observer.stdout is not None
    observer.stdin.write("\n")
    observer.stdin.flush()
    return dict(json.loads(observer.stdout.readline()))


def test_a_cancelled_run_leaves_nothing_on_its_cluster_and_a_node_that_dies_costs_the_next_no_row(
    cluster: Cluster,
    observer: subprocess.Popen[str],
    start: Start,
    job_folder: Path,
    prefect_api: str,
    moments: Moments,
) -> None:
    set_pace(job_folder, 0.02)
    process = start(RAY_ADDRESS=cluster.address, OVERNIGHT_FORK_SERVER="")
    wait_for_parts(process, job_folder, 2)
    assert left_on(observer) != NOTHING
    moments.record("Cancel pressed", len(parts(job_folder)))
    set_state(prefect_api, newest_flow_run(prefect_api)["id"], "CANCELLING")
    process.communicate(timeout=SECONDS)
    assert newest_flow_run(prefect_api)["state_type"] == "CANCELLED"
    wait_for("all that it had to be free", lambda: left_on(observer) == NOTHING, SECONDS)

    settled, traced = settled_rows(job_folder), traced_rows(job_folder)
    process = start(RAY_ADDRESS=cluster.address, OVERNIGHT_FORK_SERVER="")
    wait_for_parts(process, job_folder, len(parts(job_folder)) + moments.number(2, 8))
    [second] = cluster.worker_nodes
    [raylet] = second.all_processes["raylet"]
    moments.record("a node's raylet killed", len(parts(job_folder)))
    assert kill(raylet.process.pid)
    wait_for_nodes(process, job_folder, 1)
    set_pace(job_folder, 0.004)
    receipt = finish(process)
    assert_exact(receipt, job_folder)
    assert "node 127.0.0.2 ended" in lost_node(receipt)
    assert receipt["rows_resumed"] >= settled > 0
    assert traced_rows(job_folder) - traced <= ROWS * 9 // 10 - settled + TRIED_TWICE + UNDER_WAY


def lost_node(receipt: dict[str, Any]) -> str:
    """Return the one incident of a receipt that is about a node."""
    [told] = [incident["what"] for incident in receipt["incidents"] if incident["what"].startswith("node ")]
    return str(told)


@pytest.fixture
def spot_node(head: Cluster) -> Iterator[Process]:
    """`ray start --block`, as KubeRay starts a node: a second node of two CPUs. SIGTERM is the notice of its end."""
    mark = uuid.uuid4().hex
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--address={head.address}",
        "--num-cpus=2", "--node-ip-address=127.0.0.2", "--object-store-memory=100000000",
    ]  # fmt: skip
    environment = os.environ | {MARK: mark, "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(NOTICE_SECONDS)}
    process = Process(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process.mark = mark
    try:
        wait_for("the second node", lambda: len(head.global_state.node_table()) == 2)
        yield process
    finally:
        end(process)


def test_a_spot_node_that_is_told_to_go_hands_its_work_over(
    head: Cluster, spot_node: Process, start: Start, job_folder: Path, moments: Moments
) -> None:
    set_pace(job_folder, 0.05)
    process = start(RAY_ADDRESS=head.address, OVERNIGHT_FORK_SERVER="")
    wait_for_parts(process, job_folder, moments.number(2, 8))
    moments.record("a spot node told to go", len(parts(job_folder)))
    spot_node.send_signal(signal.SIGTERM)
    assert spot_node.wait(NOTICE_SECONDS + 60) == 1  # how `ray start` ends after its processes
    wait_for_nodes(process, job_folder, 1)
    set_pace(job_folder, 0.004)
    receipt = finish(process)
    assert_exact(receipt, job_folder)
    assert receipt["rows_resumed"] == 0  # in one attempt
    assert "node 127.0.0.2 ended" in lost_node(receipt)
    assert traced_rows(job_folder) <= ROWS * 9 // 10 + TRIED_TWICE  # no row was computed again
