"""Each model of a run is loaded once: its trial's process becomes the first worker, wherever Ray reserves what for it.

The session's Ray declares two GPUs, which no library finds, so a model with one runs on the CPU.
"""

from pathlib import Path
from typing import Any

import pytest

from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, parquet, published, write_parquet

CODE = """
import os
import threading
from pathlib import Path

import ray

threads = threading.Thread(target=threading.Event().wait, daemon=True)
threads.start()


class Names:
    def get(self):
        return "of the run"


class Loaded:
    def __init__(self, log):
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\\n")
        self.names = ray.remote(Names).options(name="names", num_cpus=0, get_if_exists=True).remote()

    def __call__(self, batch):
        name = ray.get(self.names.get.remote())
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
        return {"pid": [os.getpid()] * len(batch["x"]), "name": [name] * len(batch["x"]),
                "devices": [devices] * len(batch["x"]), "threads": [os.environ["OMP_NUM_THREADS"]] * len(batch["x"])}
"""


@pytest.mark.parametrize(
    ("settings", "devices"),
    [({}, None), ({"memory": 2**20, "workers": 1}, None), ({"num_gpus": 1, "workers": 1}, ("0", "1"))],
    ids=["CPUs", "a reservation", "a device"],
)
def test_a_model_is_loaded_once_and_its_code_may_use_ray(
    settings: dict[str, Any], devices: tuple[str, ...] | None, run_job: RunJob, tmp_path: Path
) -> None:
    (WORKER_PATH / "loading_once.py").write_text(CODE)
    write_parquet(tmp_path / "in/a.parquet", x=list(range(40)))
    model = {"kind": "python", "target": "loading_once:Loaded", "kwargs": {"log": str(tmp_path / "log")}}
    job = jobs.job(tmp_path, source=parquet(tmp_path), inference=[model | settings | {"batch_size": 5}])
    receipt = run_job(job)
    assert_settled(receipt, written=40)
    table = published(receipt, tmp_path / "out")
    assert (tmp_path / "log").read_text().split() == [str(pid) for pid in set(table["pid"].to_pylist())]
    assert set(table["name"].to_pylist()) == {"of the run"}
    assert set(table["threads"].to_pylist()) == {"1"}
    assert devices is None or set(table["devices"].to_pylist()) < set(devices)
