"""A model of a built-in kind on nodes that share neither /dev/shm nor Ray's folder, of which one dies.

The head has no CPUs. Each other node runs in a mount namespace of its own, and declares a GPU that no library finds.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from overnight.tasks.workers import fork_server
from tests.chaos.conftest import parts, wait_for_nodes
from tests.chaos.ray_nodes import MAY_UNSHARE, OWN_FILES, Nodes
from tests.chaos.runs import Start, finish, set_pace, wait_until
from tests.conftest import WORKER_PATH
from tests.contracts.models.adapters.pictures import resnet, saved

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.nightly,
    pytest.mark.skipif(not MAY_UNSHARE, reason="namespaces of Linux need their privilege"),
]
PICTURES, PER_PART = 160, 10
STEP = """
import time
from pathlib import Path


def slow(batch, folder):
    for _ in batch["uri"]:
        time.sleep(float((Path(folder) / "pace").read_text()))
    return {"mean": [float(image.mean()) for image in batch["image"]]}
"""


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """A head, and two nodes with folders of their own."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv(fork_server.ADDRESS)  # a cluster has none
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        found = Nodes(folder)
        try:
            for _ in range(2):
                found.add("--num-gpus=1", before=[*OWN_FILES, folder])
            found.wait_for(3)
            yield found
        finally:
            found.end()


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """A folder with a job of pictures, each of another grey, and a small model for them."""
    (WORKER_PATH / "slow_step.py").write_text(STEP)
    saved(tmp_path / "resnet", resnet())
    (tmp_path / "in").mkdir()
    for number in range(PICTURES):
        Image.fromarray(np.full((40, 40, 3), number, np.uint8)).save(tmp_path / f"in/{number:03d}.png")
    model = {"kind": "image_classification", "model": str(tmp_path / "resnet"), "num_gpus": 0.5, "workers": [1, 2]}
    job = {
        "name": "apart",
        "retries": {"delay_seconds": 1},
        "source": {"kind": "images", "path": str(tmp_path / "in")},
        "preprocess": [{"kind": "python", "target": "slow_step:slow", "kwargs": {"folder": str(tmp_path)}}],
        "inference": [model | {"cpu_fallback": True, "batch_size": 5}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": PER_PART},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    set_pace(tmp_path, 0.5)
    return tmp_path


def test_a_node_that_dies_costs_no_row_where_nodes_share_no_memory_and_the_head_has_no_cpus(
    nodes: Nodes, start: Start, job_folder: Path
) -> None:
    process = start(RAY_ADDRESS=nodes.address, OVERNIGHT_FORK_SERVER="")
    wait_until(lambda: len(parts(job_folder)) >= 3, process)
    nodes.kill_newest()
    wait_for_nodes(process, job_folder, 2)
    set_pace(job_folder, 0.01)
    receipt = finish(process)
    rows = [row for file in receipt["files"] for row in pq.read_table(job_folder / "out" / file).to_pylist()]
    assert sorted((row["row_id"], row["mean"]) for row in rows) == [
        (f"{number:03d}.png", float(number)) for number in range(PICTURES)
    ]
    assert {row["predicted_label"] for row in rows} <= {"good", "bad", "ugly"}
    assert receipt["rows_in"] == receipt["rows_out"] == PICTURES
    [lost] = [found["what"] for found in receipt["incidents"] if found["what"].startswith("node ")]
    assert lost.startswith("node 127.0.0.3 ended")
