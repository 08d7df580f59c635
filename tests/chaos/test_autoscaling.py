"""A run on Ray's own autoscaler, whose nodes are processes of this machine with declared GPUs.

A node that dies in the middle: `test_clusters.py`, because these nodes share one folder. A group that never comes:
`tests/tasks/resources/test_waiting.py`.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from overnight.tasks.resources.node_types import VARIABLE
from overnight.tasks.storage.location import Location
from overnight.tasks.workers import fork_server
from tests.chaos.conftest import ROWS, write_job
from tests.chaos.runs import MARK, Process, Start, end, finish, free_ports, slow_model, wait_for
from tests.conftest import WORKER_PATH

pytestmark = [pytest.mark.chaos, pytest.mark.nightly]  # minutes: nodes start, and are idle until they go
T4 = {"CPU": 1, "GPU": 1, "accelerator_type:T4": 1, "object_store_memory": 10**8}
ON_T4 = {"num_gpus": 1, "accelerator_type": "T4", "workers": [1, 2], "batch_size": 20}
NODES = """
import sys
import ray

ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
print("nodes", sum(1 for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")))
"""


@contextlib.contextmanager
def scaling_cluster(folder: Path, temp_dir: str) -> Iterator[tuple[str, Path]]:
    """A head with two CPUs, and a group of at most two nodes with a T4 each; none of them runs at first.

    The address, and the file of the autoscaler. The nodes share the folder of working directories, and each that starts
    makes the directory of a run again.
    """
    port, client_port = free_ports(2)
    address, configuration = f"127.0.0.1:{port}", folder / "cluster.json"
    lists = ("cluster_synced_files", "rsync_exclude", "rsync_filter")
    commands = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    group = {"resources": T4, "node_config": {}, "min_workers": 0, "max_workers": 2}
    head = {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 0}
    provider = {"type": "fake_multinode", "gcs_address": address, "use_node_id_as_ip": True}
    settings = {
        "cluster_name": "fake", "max_workers": 2, "upscaling_speed": 1.0, "idle_timeout_minutes": 0.4,
        "provider": provider | {"disable_node_updaters": True}, "auth": {},
        "available_node_types": {"ray.head.default": head, "t4": group}, "head_node_type": "ray.head.default",
        "file_mounts": {}, "file_mounts_sync_continuously": False,
        **{key: [] for key in lists}, **{f"{name}_commands": [] for name in commands},
    }  # fmt: skip
    configuration.write_text(json.dumps(settings))
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2",
        f"--port={port}", f"--autoscaling-config={configuration}", f"--temp-dir={temp_dir}",
        f"--ray-client-server-port={client_port}", "--include-dashboard=false", "--object-store-memory=200000000",
    ]  # fmt: skip
    environment = {
        "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "AUTOSCALER_HEARTBEAT_TIMEOUT_S": "5",
        "PYTHONPATH": str(WORKER_PATH), MARK: uuid.uuid4().hex,
    }  # fmt: skip
    process = Process(
        command, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    process.mark = environment[MARK]
    try:
        yield address, configuration
    finally:
        end(process)


def gpu_nodes(address: str) -> int:
    """Return how many nodes with a GPU are alive; -1 if the head does not answer."""
    command = [sys.executable, "-c", NODES, address]
    told = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120).stdout
    return next((int(line.removeprefix("nodes ")) for line in told.splitlines() if line.startswith("nodes ")), -1)


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    sink = {"kind": "parquet", "path": "s3://scaled/out"}  # a local one cannot be tidied without a working directory
    return write_job(tmp_path / "job", inference=[slow_model(tmp_path / "job") | ON_T4], sink=sink)


def test_a_group_starts_from_zero_and_goes_when_the_run_has_ended(
    start: Start, job_folder: Path, tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv(fork_server.ADDRESS)  # a cluster has none
    s3.create_bucket(Bucket="scaled")
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        scaling_cluster(tmp_path, folder) as (address, configuration),
    ):
        wait_for("the head", lambda: gpu_nodes(address) == 0)
        receipt = finish(start(RAY_ADDRESS=address, OVERNIGHT_FORK_SERVER="", **{VARIABLE: str(configuration)}))
        assert gpu_nodes(address) > 0
        files = [Location(f"s3://scaled/out/{file}").read_bytes() for file in receipt["files"]]
        rows = [row for file in files for row in pq.read_table(io.BytesIO(file)).to_pylist()]
        assert sorted((row["x"], row["twice"]) for row in rows) == [(x, 2 * x) for x in range(ROWS) if x % 10 != 3]
        wait_for("the nodes to go", lambda: gpu_nodes(address) == 0)
