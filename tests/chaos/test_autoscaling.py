"""Runs on Ray's own autoscaler, whose nodes are processes of this machine with declared GPUs.

A group starts from zero, and goes when the run has ended. A group that never comes ends the run with a sentence. A node
that dies in the middle: `test_cluster.py`, because these nodes share one folder.
"""

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from overnight.tasks.resources.node_types import VARIABLE
from overnight.tasks.storage.location import Location
from overnight.tasks.workers import fork_server
from tests.chaos.ceph_frozen import free_ports
from tests.chaos.conftest import ROWS, write_job
from tests.chaos.runs import MARK, Process, Start, end, finish, slow_model, wait_for
from tests.conftest import WORKER_PATH

pytestmark = pytest.mark.chaos
T4 = {"CPU": 1, "GPU": 1, "accelerator_type:T4": 1, "object_store_memory": 10**8}
ON_T4 = {"num_gpus": 1, "accelerator_type": "T4", "workers": [1, 2], "batch_size": 20}
NODES = """
import sys
import ray

ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
for _ in sys.stdin:
    print("nodes", sum(1 for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")), flush=True)
"""


class ScalingCluster:
    """A head with two CPUs, and a group of at most two nodes with a T4 each; none of them runs at first.

    The nodes share the folder of working directories, and each that starts makes the directory of a run anew.
    """

    def __init__(self, folder: Path, temp_dir: str) -> None:
        port, client_port = free_ports(2)
        self.address, self.configuration = f"127.0.0.1:{port}", folder / "cluster.json"
        lists = ("cluster_synced_files", "rsync_exclude", "rsync_filter")
        commands = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
        group = {"resources": T4, "node_config": {}, "min_workers": 0, "max_workers": 2}
        head = {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 0}
        self.configuration.write_text(
            json.dumps(
                {
                    "cluster_name": "fake", "max_workers": 2, "upscaling_speed": 1.0, "idle_timeout_minutes": 0.4,
                    "provider": {
                        "type": "fake_multinode", "gcs_address": self.address,
                        "use_node_id_as_ip": True, "disable_node_updaters": True,
                    },
                    "auth": {}, "available_node_types": {"ray.head.default": head, "t4": group},
                    "head_node_type": "ray.head.default", "file_mounts": {}, "file_mounts_sync_continuously": False,
                    **{key: [] for key in lists}, **{f"{name}_commands": [] for name in commands},
                }
            )
        )  # fmt: skip
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2",
            f"--port={port}", f"--autoscaling-config={self.configuration}", f"--temp-dir={temp_dir}",
            f"--ray-client-server-port={client_port}", "--include-dashboard=false", "--object-store-memory=200000000",
        ]  # fmt: skip
        mark = uuid.uuid4().hex
        environment = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", MARK: mark}
        environment |= {"AUTOSCALER_HEARTBEAT_TIMEOUT_S": "5", "PYTHONPATH": str(WORKER_PATH)}
        self.process = Process(
            command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self.process.mark = mark
        self._observer: subprocess.Popen[str] | None = None

    def nodes(self) -> int:
        """Return how many nodes with a GPU are alive."""
        if self._observer is None:
            self._observer = subprocess.Popen(
                [sys.executable, "-c", NODES, self.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._observer.stdin is not None
        assert self._observer.stdout is not None
        self._observer.stdin.write("\n")
        self._observer.stdin.flush()
        told = iter(self._observer.stdout.readline, "")  # Ray writes there, too
        return next(int(line.removeprefix("nodes ")) for line in told if line.startswith("nodes "))

    def end(self) -> None:
        if self._observer:
            self._observer.kill()
            self._observer.communicate()
        end(self.process)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScalingCluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv(fork_server.ADDRESS)  # a cluster has none
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        found = ScalingCluster(tmp_path, folder)
        try:
            yield found
        finally:
            found.end()


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return write_job(tmp_path / "job", inference=[slow_model(tmp_path / "job") | ON_T4])


def test_a_group_starts_from_zero_and_goes_when_the_run_has_ended(
    cluster: ScalingCluster, start: Start, job_folder: Path, s3: Any
) -> None:
    s3.create_bucket(Bucket="scaled")
    job = yaml.safe_load((job_folder / "job.yaml").read_text())
    job["sink"]["path"] = "s3://scaled/out"  # a local one cannot be tidied without a working directory
    (job_folder / "job.yaml").write_text(yaml.safe_dump(job))
    assert cluster.nodes() == 0
    process = start(RAY_ADDRESS=cluster.address, OVERNIGHT_FORK_SERVER="", **{VARIABLE: str(cluster.configuration)})
    receipt = finish(process)
    assert cluster.nodes() > 0
    files = [Location(f"s3://scaled/out/{file}").read_bytes() for file in receipt["files"]]
    rows = [row for file in files for row in pq.read_table(pa.BufferReader(file)).to_pylist()]
    assert sorted((row["x"], row["twice"]) for row in rows) == [(x, 2 * x) for x in range(ROWS) if x % 10 != 3]
    wait_for("the nodes to go", lambda: cluster.nodes() == 0, 120)


def test_a_group_that_never_comes_ends_the_run_with_what_it_waited_for(
    cluster: ScalingCluster, start: Start, job_folder: Path
) -> None:
    job = yaml.safe_load((job_folder / "job.yaml").read_text())
    job["inference"][0]["accelerator_type"] = "H100"
    job["cluster"] = {"h100": {"resources": {"CPU": 8, "GPU": 1, "accelerator_type:H100": 1}, "max_workers": 1}}
    job |= {"row_timeout_seconds": 3, "stall_timeout_seconds": 5, "retries": {"attempts": 1}}
    (job_folder / "job.yaml").write_text(yaml.safe_dump(job))
    process = start(RAY_ADDRESS=cluster.address, OVERNIGHT_FORK_SERVER="")
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "waited 5 s (stall_timeout_seconds) for a node with" in stderr
    assert "accelerator H100, and none came" in stderr
