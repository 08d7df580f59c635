"""A node that dies under a run: a real cluster of two nodes on this machine, whose second loses its raylet."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ray.cluster_utils import Cluster

from tests.chaos.test_kills import ROWS, job_folder, parts

__all__ = ["job_folder"]

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
            found.add_node(num_cpus=2)
            yield found
        finally:
            found.shutdown()


def test_a_node_that_dies_costs_no_row(cluster: Cluster, prefect_api: str, job_folder: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    environment = {**os.environ, "PREFECT_API_URL": prefect_api, "RAY_ADDRESS": cluster.address}
    command = [sys.executable, "-c", "from flows.cli import main; main()", "run", "job.yaml", "--json"]
    process = subprocess.Popen(
        command, cwd=job_folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wanted = random.Random(seed).randint(2, 12)
        deadline = time.monotonic() + 120
        while len(parts(job_folder)) < wanted:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no parts in time"
            time.sleep(0.05)
        [second] = cluster.worker_nodes
        [raylet] = second.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=240)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, stderr
    receipt = json.loads(stdout)
    rows = [row for file in receipt["files"] for row in pq.read_table(job_folder / "out" / file).to_pylist()]
    assert sorted((row["x"], row["twice"]) for row in rows) == [(x, 2 * x) for x in range(ROWS) if x % 10 != 3]
    traced = len((job_folder / "trace").read_text().splitlines())
    assert traced <= ROWS * 9 // 10 + 16 + 8 * 40, "what was staged or under way elsewhere is not done again"
