"""The head of a cluster is killed during a run whose process is on another node, and starts again.

Ray forgets the cluster, because it has no Redis for its state: the run ends, and the next one resumes.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from overnight.tasks.workers import fork_server
from tests.chaos.conftest import assert_exact, assert_resumed, parts, settled_rows, wait_for_parts
from tests.chaos.moments import Moments
from tests.chaos.ray_nodes import MAY_UNSHARE, OWN_PROCESSES, RAY_START, Nodes
from tests.chaos.runs import Process, Start, finish, set_pace, traced_rows

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.nightly,
    pytest.mark.skipif(not MAY_UNSHARE, reason="process namespaces need their privilege"),
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Nodes]]:
    """Start a head and a node of two CPUs."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv(fork_server.ADDRESS)  # a cluster has none
    started: list[Nodes] = []
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:

        def start_cluster() -> Nodes:
            started.append(Nodes(folder))
            started[0].add()
            started[0].wait_for(2)
            return started[0]

        yield start_cluster
        for nodes in started:
            nodes.end()


def start_on_own_node(start: Start, nodes: Nodes) -> Process:
    """Start a run whose process is on a node without CPUs of its own, as docker-compose.yml does."""
    joining = [*RAY_START, f"--address={nodes.address}", "--num-cpus=0", "--node-ip-address=127.0.0.9"]
    join = " ".join([*joining, "--object-store-memory=100000000", ">&2"])
    before = [*OWN_PROCESSES, "sh", "-c", f'{join} && "$@"', "sh"]
    return start(before=before, RAY_ADDRESS=nodes.address, OVERNIGHT_FORK_SERVER="", RAY_raylet_start_wait_time_s="120")


def test_a_run_ends_with_its_head_and_the_next_one_resumes(
    cluster: Callable[[], Nodes], start: Start, job_folder: Path, moments: Moments
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
