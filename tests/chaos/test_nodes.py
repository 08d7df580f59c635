"""A node that dies under a run: a real cluster of two nodes on this machine, whose second loses its raylet."""

import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from tests.chaos.conftest import ROWS, TRIED_TWICE, assert_exact, wait_for_parts
from tests.chaos.runs import Start, finish, traced_rows

pytestmark = pytest.mark.chaos


@pytest.fixture
def cluster(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head and a second node of two CPUs each, in processes and a folder of their own."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("TRACE", str(job_folder / "trace"))  # which workers inherit from their node
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        found = Cluster()
        try:
            found.add_node(num_cpus=2, include_dashboard=False, temp_dir=folder)
            found.add_node(num_cpus=2, node_ip_address="127.0.0.2")  # so that the run connects to the head
            yield found
        finally:
            found.shutdown()


def test_a_node_that_dies_costs_no_row(cluster: Cluster, start: Start, job_folder: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    process = start(RAY_ADDRESS=cluster.address)
    wait_for_parts(process, job_folder, random.Random(seed).randint(2, 12))
    [second] = cluster.worker_nodes
    [raylet] = second.all_processes["raylet"]
    os.kill(raylet.process.pid, signal.SIGKILL)
    assert_exact(finish(process), job_folder)
    under_way = 8 * 40
    assert traced_rows(job_folder) <= ROWS * 9 // 10 + TRIED_TWICE + under_way  # what was staged is not done again
