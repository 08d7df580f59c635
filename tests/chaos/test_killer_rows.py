"""Rows that kill, hang or spoil their worker cost one row each, and a stream that stands still ends its run."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from overnight.tasks.errors import OvernightError
from tests.chaos.runs import wait_for
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, published, quarantine

pytestmark = pytest.mark.chaos

ROWS = 60
MODELS = '''
import ctypes
import re
import time

import torch


def crash():
    ctypes.string_at(0)


def hang():
    time.sleep(3600)


def hang_in_c():
    re.match("(a+)+$", "a" * 64 + "b")  # holds the interpreter's lock for years


def spoil_device():
    raise RuntimeError("CUDA error: device-side assert triggered")


class Killed:
    """Doubles x; `by` says which rows do what."""

    def __init__(self, by):
        self.by = {int(row): globals()[how] for row, how in by.items()}

    def __call__(self, batch):
        values = batch["x"].tolist()
        for row, kill in self.by.items():
            if row in values:
                kill()
        return {"twice": batch["x"] * 2}


class Killer(torch.nn.Module):
    """A module, whose workers are forked."""

    def __init__(self, by):
        super().__init__()
        self.killed = Killed(by)

    def forward(self, x):
        return self.killed({"x": x})["twice"]
'''
FORKED = {"kind": "torch", "module": "killer_models:Killer", "columns": ["x"], "outputs": ["twice"], "batch_size": 16}


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    (WORKER_PATH / "killer_models.py").write_text(MODELS)
    (tmp_path / "in").mkdir()
    for i in range(2):
        rows = range(i * ROWS // 2, (i + 1) * ROWS // 2)
        pq.write_table(pa.table({"x": rows}), tmp_path / f"in/{i}.parquet")
    return {
        "name": "killers",
        "retries": {"delay_seconds": 1},
        "source": {"kind": "parquet", "path": str(tmp_path / "in")},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 20},
        "checks": {"max_quarantined": 0.1},
    }


def killed(by: dict[int, str]) -> dict[str, Any]:
    return {"kind": "python", "target": "killer_models:Killed", "kwargs": {"by": by}}


def test_each_row_that_ends_a_worker_or_its_preparation_is_quarantined_with_the_true_reason(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    model = FORKED | {"kwargs": {"by": {24: "hang", 37: "spoil_device", 50: "crash"}}}
    steps = [killed({5: "hang_in_c", 11: "crash"})]
    receipt = run_job(job | {"preprocess": steps, "inference": [model], "row_timeout_seconds": 5})
    losses = {
        5: ("preprocess", "RowTimeout"),
        11: ("preprocess", "WorkerDied"),
        24: ("infer", "RowTimeout"),
        37: ("infer", "RuntimeError"),
        50: ("infer", "WorkerDied"),
    }
    table = published(receipt, tmp_path / "out")
    assert sorted(table["twice"].to_pylist()) == [2 * x for x in range(ROWS) if x not in losses]
    assert_settled(receipt)
    found = {row["row_id"]: (row["stage"], row["error_type"]) for row in quarantine(tmp_path / "out", "all")}
    assert found == {f"{x // 30}.parquet#{x % 30}": loss for x, loss in losses.items()}
    assert any("started again" in incident["what"] for incident in receipt["incidents"])


def test_a_stream_that_stands_still_fails_and_names_the_stage(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    # Longer than the first task of any stage takes to start: until then it is that one that is waited for.
    model = killed({37: "hang"}) | {"batch_size": 16}
    stalled = job | {"inference": [model], "row_timeout_seconds": None, "stall_timeout_seconds": 20}
    with pytest.raises(OvernightError, match="20 s") as caught:
        run_job(stalled)
    assert (caught.value.stage, caught.value.error_type) == ("infer", "Stalled")
    assert not list((tmp_path / "out").glob("*.parquet"))
    wait_for("the CPU of the worker that hangs", lambda: ray.available_resources().get("CPU") == 2, 30)
