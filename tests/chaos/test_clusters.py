"""Runs on real clusters, whose nodes are processes of this machine, each at another loopback address.

The nodes share neither /dev/shm nor Ray's folder: each is in a mount namespace of its own. The head has no CPUs.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.workers import fork_server
from tests.chaos.conftest import (
    ROWS,
    TRIED_TWICE,
    assert_exact,
    assert_resumed,
    newest_flow_run,
    parts,
    set_state,
    settled_rows,
    wait_for_nodes,
    wait_for_parts,
)
from tests.chaos.moments import Moments
from tests.chaos.runs import MARK, Process, Start, answers, end, finish, free_ports, set_pace, traced_rows, wait_for
from tests.conftest import WORKER_PATH

RAY_START = [sys.executable, "-m", "ray.scripts.scripts", "start"]
OWN_FILES = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs "$0" && exec "$@"',
]
OWN_PROCESSES = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
MAY_UNSHARE = subprocess.run([*OWN_PROCESSES, "true"], capture_output=True, check=False).returncode == 0
pytestmark = [
    pytest.mark.chaos,
    pytest.mark.nightly,  # minutes each: nodes start and die one after another
    pytest.mark.timeout(900),
    pytest.mark.skipif(not MAY_UNSHARE, reason="namespaces of Linux need their privilege"),
]
HEAD = "127.0.0.10"  # with Redis, Ray puts another address of the machine in the place of 127.0.0.1
SLOW_START = {"RAY_raylet_start_wait_time_s": "120"}  # on a busy machine
CANCEL_SECONDS = 30  # in which a cancelled run must have ended, and all that it had is free
UNDER_WAY = 8 * 40  # rows that are on their way through a node
NOTICE_SECONDS = 30  # from the notice to the end of a spot node
NODES = """
import json, sys
import ray

ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
# Ray Data's own: one each for a cluster, for ever, without a CPU.
OWN = {"_AutoscalingCoordinatorActor", "_StatsActor", "_UsageCollectionActor", "ActorLocationTracker"}
nodes = sum(node["Alive"] for node in ray.nodes())
free = ray.available_resources().get("CPU", 0) == ray.cluster_resources().get("CPU", 0)
actors = {a["ActorClassName"] for a in ray._private.state.actors().values() if a["State"] == "ALIVE"} - OWN
print("found", json.dumps({"nodes": nodes, "is_free": free and not actors}))
"""


class Nodes:
    """A head, and nodes of two CPUs that join it.

    The head has its own list of processes: `ray start --head` refuses to start beside a process that names its address.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        port, client_port = free_ports(2)
        self.address = f"{HEAD}:{port}"
        self._head_options = [
            "--head", f"--port={port}", f"--temp-dir={folder}", f"--ray-client-server-port={client_port}",
            "--num-cpus=0", "--include-dashboard=false", f"--node-ip-address={HEAD}",
        ]  # fmt: skip
        self._environment: dict[str, str] = {}
        self.joined: list[Process] = []

    def start(self, count: int, **environment: str) -> None:
        """Start the head and `count` nodes, and wait until all are alive."""
        self._environment = environment
        self.start_head()
        for _ in range(count):
            self.add()
        self.wait_for(1 + count)

    def start_head(self) -> None:
        self._head = self._start(self._head_options, OWN_PROCESSES)

    def kill_head(self) -> None:
        end(self._head)

    def add(self) -> None:
        """Start a node at the next address."""
        wait_for("the head", lambda: answers(HEAD, int(self.address.partition(":")[2])))
        joining = [f"--address={self.address}", f"--node-ip-address=127.0.0.{len(self.joined) + 2}", "--num-cpus=2"]
        self.joined.append(self._start(joining, [*OWN_FILES, self.folder]))

    def wait_for(self, count: int) -> None:
        wait_for("the nodes", lambda: self.state()["nodes"] == count, 300)

    def state(self) -> dict[str, Any]:
        """Return the number of living nodes, and whether no run has CPUs or actors."""
        command = [sys.executable, "-c", NODES, self.address]
        told = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120).stdout
        found = [line.removeprefix("found ") for line in told.splitlines() if line.startswith("found ")]
        return dict(json.loads(found[0])) if found else {"nodes": 0, "is_free": False}

    def kill_newest(self) -> None:
        end(self.joined.pop())

    def end(self) -> None:
        while self.joined:
            self.kill_newest()
        if hasattr(self, "_head"):
            self.kill_head()

    def _start(self, options: list[str], before: list[str]) -> Process:
        mark = uuid.uuid4().hex
        process = Process(
            [*before, *RAY_START, "--block", *options, "--object-store-memory=200000000"],
            env={**os.environ, **SLOW_START, **self._environment, "PYTHONPATH": str(WORKER_PATH), MARK: mark},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        process.mark = mark
        return process


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """A cluster that the test starts."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv(fork_server.ADDRESS)  # a cluster has none
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        found = Nodes(folder)
        try:
            yield found
        finally:
            found.end()


def start_here(start: Start, nodes: Nodes) -> Process:
    """Start a run whose process is beside the head."""
    return start(RAY_ADDRESS=nodes.address, OVERNIGHT_FORK_SERVER="")


def start_on_own_node(start: Start, nodes: Nodes) -> Process:
    """Start a run whose process is on a node without CPUs of its own, as docker-compose.yml does."""
    joining = [*RAY_START, f"--address={nodes.address}", "--num-cpus=0", "--node-ip-address=127.0.0.9"]
    join = " ".join([*joining, "--object-store-memory=100000000", ">&2"])
    before = [*OWN_FILES, nodes.folder, *OWN_PROCESSES, "sh", "-c", f'{join} && "$@"', "sh"]
    return start(before=before, RAY_ADDRESS=nodes.address, OVERNIGHT_FORK_SERVER="", **SLOW_START)


def lost_node(receipt: dict[str, Any]) -> str:
    """Return the address of the one node that a receipt reports as ended."""
    [told] = [incident["what"] for incident in receipt["incidents"] if incident["what"].startswith("node ")]
    node, ended, _ = str(told).partition(" ended")
    assert ended
    return node.removeprefix("node ")


def test_a_cancelled_run_leaves_nothing_on_its_cluster_and_a_node_that_dies_costs_the_next_no_row(
    nodes: Nodes, start: Start, job_folder: Path, prefect_api: str, moments: Moments
) -> None:
    nodes.start(2)
    set_pace(job_folder, 0.02)
    process = start_here(start, nodes)
    wait_for_parts(process, job_folder, 2)
    assert not nodes.state()["is_free"]
    moments.record("Cancel pressed", len(parts(job_folder)))
    set_state(prefect_api, newest_flow_run(prefect_api)["id"], "CANCELLING")
    process.communicate(timeout=CANCEL_SECONDS)
    assert newest_flow_run(prefect_api)["state_type"] == "CANCELLED"
    wait_for("all that it had to be free", lambda: nodes.state()["is_free"], CANCEL_SECONDS)

    settled, traced = settled_rows(job_folder), traced_rows(job_folder)
    process = start_here(start, nodes)
    wait_for_parts(process, job_folder, len(parts(job_folder)) + moments.number(2, 8))
    moments.record("a node killed", len(parts(job_folder)))
    nodes.kill_newest()
    wait_for_nodes(process, job_folder, 2)
    set_pace(job_folder, 0.004)
    receipt = finish(process)
    assert_exact(receipt, job_folder)
    assert receipt["rows_resumed"] >= settled > 0
    assert lost_node(receipt) == "127.0.0.3"
    assert traced_rows(job_folder) - traced <= ROWS * 9 // 10 - settled + TRIED_TWICE + UNDER_WAY


def test_a_spot_node_that_is_told_to_go_hands_its_work_over(
    nodes: Nodes, start: Start, job_folder: Path, moments: Moments
) -> None:
    nodes.start(2, RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=str(NOTICE_SECONDS))
    set_pace(job_folder, 0.05)
    process = start_here(start, nodes)
    wait_for_parts(process, job_folder, moments.number(2, 8))
    moments.record("a spot node told to go", len(parts(job_folder)))
    spot = nodes.joined[-1]
    spot.send_signal(signal.SIGTERM)
    assert spot.wait(NOTICE_SECONDS + 60) == 1  # how `ray start` ends after its processes
    wait_for_nodes(process, job_folder, 2)
    set_pace(job_folder, 0.004)
    receipt = finish(process)
    assert_exact(receipt, job_folder)
    assert receipt["rows_resumed"] == 0  # in one attempt
    assert lost_node(receipt) == "127.0.0.3"
    assert traced_rows(job_folder) <= ROWS * 9 // 10 + TRIED_TWICE  # no row was computed again


def test_a_run_ends_with_its_head_and_the_next_one_resumes(
    nodes: Nodes, start: Start, job_folder: Path, moments: Moments
) -> None:
    """Ray forgets the state of the cluster."""
    nodes.start(1)
    set_pace(job_folder, 0.05)
    process = start_on_own_node(start, nodes)
    wait_for_parts(process, job_folder, moments.number(2, 8))
    moments.record("the head killed", len(parts(job_folder)))
    nodes.kill_head()
    process.communicate(timeout=400)
    assert process.returncode
    nodes.kill_newest()
    nodes.start(1)
    settled, traced = settled_rows(job_folder), traced_rows(job_folder)
    set_pace(job_folder, 0.004)
    receipt = finish(start_on_own_node(start, nodes))
    assert_exact(receipt, job_folder)
    assert_resumed(receipt, job_folder, settled, traced)
    assert any(found["what"].startswith("no node of the attempt before is left") for found in receipt["incidents"])


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """The address of a Redis server that keeps nothing on disk."""
    [port] = free_ports(1)
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        yield f"127.0.0.1:{port}"
        process.kill()


@pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed")
def test_a_run_outlives_its_head_where_ray_keeps_its_state_in_redis(
    nodes: Nodes, redis: str, start: Start, job_folder: Path, moments: Moments
) -> None:
    nodes.start(1, RAY_REDIS_ADDRESS=redis, RAY_external_storage_namespace="chaos")
    set_pace(job_folder, 0.05)
    process = start_on_own_node(start, nodes)
    wait_for_parts(process, job_folder, moments.number(2, 8))
    moments.record("the head killed", len(parts(job_folder)))
    nodes.kill_head()
    nodes.start_head()
    set_pace(job_folder, 0.004)
    receipt = finish(process)
    assert_exact(receipt, job_folder)
    assert receipt["rows_resumed"] == 0  # in one attempt
