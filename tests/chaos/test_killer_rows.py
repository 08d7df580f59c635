"""Rows that kill, hang or spoil their worker cost one row each."""

import textwrap
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
import os
import pathlib
import re
import time


def crash():
    ctypes.string_at(0)


def hang():
    time.sleep(3600)


def hang_in_c():
    re.match("(a+)+$", "a" * 64 + "b")  # holds the interpreter's lock for years


def spoil_device():
    raise RuntimeError("CUDA error: device-side assert triggered")


class Killed:
    """Doubles x; `by` says which rows do what. A row in `once` spoils the device once, and leaves a mark."""

    def __init__(self, by, once=(), mark="", column="x"):
        self.by = {int(row): globals()[how] for row, how in by.items()}
        self.once, self.mark, self.column = once, pathlib.Path(mark), column

    def __call__(self, batch):
        values = batch[self.column].tolist()
        if set(values) & set(self.once) and not self.mark.exists():
            self.mark.touch()
            spoil_device()
        for row, kill in self.by.items():
            if row in values:
                kill()
        return {"twice": batch[self.column] * 2}
'''

MODULES = '''
import torch

import killer_models


class Killer(torch.nn.Module):
    """A module, whose workers are forked."""

    def __init__(self, by):
        super().__init__()
        self.killed = killer_models.Killed(by)

    def forward(self, x):
        return self.killed({"x": x})["twice"]
'''


@pytest.fixture(autouse=True, scope="module")
def _models() -> None:
    (WORKER_PATH / "killer_models.py").write_text(textwrap.dedent(MODELS))
    (WORKER_PATH / "killer_modules.py").write_text(textwrap.dedent(MODULES))


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
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


def killed(by: dict[int, str], **settings: Any) -> dict[str, Any]:
    return {"kind": "python", "target": "killer_models:Killed", "kwargs": {"by": by, **settings}}


def module(by: dict[int, str]) -> dict[str, Any]:
    columns = {"columns": ["x"], "outputs": ["twice"]}
    return {"kind": "torch", "module": "killer_modules:Killer", "kwargs": {"by": by}, **columns}


Loss = tuple[str, str]  # stage and error type


def assert_lost(receipt: dict[str, Any], sink: Path, losses: dict[int, Loss]) -> None:
    """Assert that these rows are quarantined, each for its own reason, and that all others are published."""
    table = published(receipt, sink)
    assert sorted(table["twice"].to_pylist()) == [2 * x for x in range(ROWS) if x not in losses]
    assert_settled(receipt)
    found = {row["row_id"]: (row["stage"], row["error_type"]) for row in quarantine(sink, "all")}
    assert found == {f"{x // 30}.parquet#{x % 30}": loss for x, loss in losses.items()}


def test_each_row_that_ends_its_model_worker_is_quarantined_and_a_device_that_fails_once_costs_no_row(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    by = {11: "crash", 24: "hang", 37: "hang_in_c", 50: "spoil_device"}
    model = killed(by, once=[43], mark=str(tmp_path / "mark")) | {"batch_size": 16}
    receipt = run_job(job | {"inference": [model], "row_timeout_seconds": 5})
    errors = {11: "WorkerDied", 24: "RowTimeout", 37: "RowTimeout", 50: "RuntimeError"}
    assert_lost(receipt, tmp_path / "out", {row: ("infer", error) for row, error in errors.items()})
    assert (tmp_path / "mark").exists()
    assert any("started again" in incident["what"] for incident in receipt["incidents"])


def test_each_row_that_ends_a_forked_worker_or_its_preparation_is_quarantined(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    steps = [killed({11: "crash"})]
    model = module({24: "hang", 50: "crash"}) | {"batch_size": 16}
    receipt = run_job(job | {"preprocess": steps, "inference": [model], "row_timeout_seconds": 5})
    losses = {11: ("preprocess", "WorkerDied"), 24: ("infer", "RowTimeout"), 50: ("infer", "WorkerDied")}
    assert_lost(receipt, tmp_path / "out", losses)
    assert any("started again" in incident["what"] for incident in receipt["incidents"])


def test_a_stream_that_stands_still_fails_and_names_the_stage(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    # Longer than the first task of any stage takes to start: until then it is that one that is waited for.
    model = killed({37: "hang"}) | {"batch_size": 16}
    stalled = job | {"inference": [model], "row_timeout_seconds": None, "stall_timeout_seconds": 20}
    with pytest.raises(OvernightError, match=r"no row moved .* for 20 s .* for infer: [12] Ray tasks run") as caught:
        run_job(stalled)
    assert (caught.value.stage, caught.value.error_type) == ("infer", "Stalled")
    assert not list((tmp_path / "out").glob("*.parquet"))
    wait_for("the CPU of the worker that hangs", lambda: ray.available_resources().get("CPU") == 2, 30)
