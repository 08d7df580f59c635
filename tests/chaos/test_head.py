"""The head of a cluster is killed during a run whose process is on another node, and starts again.

Without Redis, Ray forgets the state of the cluster: the run ends, and the next one resumes. With Redis the run goes on.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from overnight.tasks.workers import fork_server
from tests.chaos.ceph_frozen import free_ports
from tests.chaos.conftest import assert_exact, assert_resumed, parts, settled_rows, wait_for_parts
from tests.chaos.moments import Moments
from tests.chaos.ray_nodes import MAY_UNSHARE, OWN_FILES, OWN_PROCESSES, RAY_START, Nodes
from tests.chaos.runs import Process, Start, finish, set_pace, traced_rows

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.nightly,
    pytest.mark.skipif(not MAY_UNSHARE, reason="process namespaces need their privilege"),
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Nodes]]:
    """Start a head and a node of two CPUs, with the given environment."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv(fork_server.ADDRESS)  # a cluster has none
    started: list[Nodes] = []
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:

        def start_cluster(**environment: str) -> Nodes:
            started.append(Nodes(folder, **environment))
            started[0].add(before=[*OWN_FILES, folder])
            started[0].wait_for(2)
            return started[0]

        yield start_cluster
        for nodes in started:
            nodes.end()


def start_on_own_node(start: Start, nodes: Nodes) -> Process:
    """Start a run whose process is on a node without CPUs of its own, as docker-compose.yml does."""
    joining = [*RAY_START, f"--address={nodes.address}", "--num-cpus=0", "--node-ip-address=127.0.0.9"]
    join = " ".join([*joining, "--object-store-memory=100000000", ">&2"])
    before = [*OWN_FILES, nodes.folder, *OWN_PROCESSES, "sh", "-c", f'{join} && "$@"', "sh"]
    return start(before=before, RAY_ADDRESS=nodes.address, OVERNIGHT_FORK_SERVER="", RAY_raylet_start_wait_time_s="120")


def test_a_run_ends_with_its_head_and_the_next_one_resumes(
    cluster: Callable[..., Nodes], start: Start, job_folder: Path, moments: Moments
) -> None:
    nodes = cluster()
    set_pace(job_folder, 0.05)
    process = start_on_own_node(start, nodes)
    wait_for_parts(process, job_folder, moments.number(2, 8))
    moments.record("the head killed", len(parts(job_folder)))
    nodes.kill_head()
    process.communicate(timeout=400)
    assert process.returncode
    nodes.kill_newest()
    nodes.start_head()
    nodes.add()
    nodes.wait_for(2)
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
    cluster: Callable[..., Nodes], redis: str, start: Start, job_folder: Path, moments: Moments
) -> None:
    nodes = cluster(RAY_REDIS_ADDRESS=redis, RAY_external_storage_namespace="chaos")
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
