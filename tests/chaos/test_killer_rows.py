"""Rows that kill, hang or spoil their worker cost one row each; a model that runs out of memory costs none."""

import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.errors import OvernightError
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, published, quarantine

pytestmark = pytest.mark.chaos

ROWS, KILLER = 60, 37
MODELS = '''
import ctypes
import os
import pathlib
import re
import time


def double(batch):
    return {"twice": batch["x"] * 2}


def crash(batch):
    if (batch["x"] == 37).any():
        ctypes.string_at(0)
    return {"twice": batch["x"] * 2}


def hang(batch):
    if (batch["x"] == 37).any():
        time.sleep(3600)
    return {"twice": batch["x"] * 2}


def hang_in_c(batch):
    if (batch["x"] == 37).any():
        re.match("(a+)+$", "a" * 64 + "b")  # holds the interpreter's lock for years
    return {"twice": batch["x"] * 2}


def spoil_device(batch):
    if (batch["x"] == 37).any():
        raise RuntimeError("CUDA error: device-side assert triggered")
    return {"twice": batch["x"] * 2}


class SpoilOnce:
    def __init__(self, mark):
        self.mark = pathlib.Path(mark)

    def __call__(self, batch):
        if (batch["x"] == 37).any() and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("CUDA error: unspecified launch failure")
        return {"twice": batch["x"] * 2}


class Small:
    """Has memory for `rows` rows, and for no row that is 37."""

    def __init__(self, rows):
        self.rows = rows

    def __call__(self, batch):
        if len(batch["x"]) > self.rows or (self.rows == 1 and (batch["x"] == 37).any()):
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return {"twice": batch["x"] * 2}
'''

MODULES = '''
import torch

import killer_models


class Killer(torch.nn.Module):
    """A module, whose workers are forked."""

    def __init__(self, how):
        super().__init__()
        self.how = getattr(killer_models, how)

    def forward(self, x):
        return self.how({"x": x})["twice"]
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
        "source": {"kind": "parquet", "path": str(tmp_path / "in")},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 20},
        "checks": {"max_quarantined": 0.1},
    }


def model(target: str, **settings: Any) -> list[dict[str, Any]]:
    return [{"kind": "python", "target": f"killer_models:{target}", "batch_size": 16, **settings}]


def module(how: str) -> list[dict[str, Any]]:
    settings = {"kwargs": {"how": how}, "columns": ["x"], "outputs": ["twice"], "batch_size": 16}
    return [{"kind": "torch", "module": "killer_modules:Killer", **settings}]


def assert_one_lost(receipt: dict[str, Any], sink: Path, stage: str, error_type: str) -> None:
    assert sorted(published(receipt, sink)["twice"].to_pylist()) == [2 * x for x in range(ROWS) if x != KILLER]
    assert_settled(receipt)
    [row] = quarantine(sink, "all")
    assert (row["row_id"], row["stage"], row["error_type"]) == (f"1.parquet#{KILLER - ROWS // 2}", stage, error_type)


@pytest.mark.parametrize(
    ("target", "error_type"),
    [("crash", "WorkerDied"), ("hang", "RowTimeout"), ("hang_in_c", "WorkerDied"), ("spoil_device", "RuntimeError")],
)
def test_a_row_that_ends_its_model_worker_is_quarantined_and_the_others_are_published(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path, target: str, error_type: str
) -> None:
    receipt = run_job(job | {"inference": model(target), "row_timeout_seconds": 3})
    assert_one_lost(receipt, tmp_path / "out", "infer", error_type)
    assert any("started again" in incident["what"] for incident in receipt["incidents"])


@pytest.mark.parametrize(("how", "error_type"), [("crash", "WorkerDied"), ("hang", "RowTimeout")])
def test_a_row_that_ends_a_forked_worker_is_quarantined_and_the_others_are_published(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path, how: str, error_type: str
) -> None:
    receipt = run_job(job | {"inference": module(how), "row_timeout_seconds": 3})
    assert_one_lost(receipt, tmp_path / "out", "infer", error_type)
    assert any("started again" in incident["what"] for incident in receipt["incidents"])


def test_a_row_that_ends_a_forked_worker_while_it_is_prepared_is_quarantined(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    steps = [{"kind": "python", "target": "killer_models:crash"}]
    settings = {"kwargs": {"how": "double"}, "columns": ["twice"], "outputs": ["more"]}
    doubles = {"kind": "torch", "module": "killer_modules:Killer", **settings}
    receipt = run_job(job | {"preprocess": steps, "inference": [doubles]})
    assert_one_lost(receipt, tmp_path / "out", "preprocess", "WorkerDied")


@pytest.mark.parametrize(("target", "error_type"), [("crash", "WorkerDied"), ("hang", "RowTimeout")])
def test_a_row_that_ends_its_preprocess_worker_is_quarantined_and_the_others_are_published(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path, target: str, error_type: str
) -> None:
    steps = [{"kind": "python", "target": f"killer_models:{target}"}]
    receipt = run_job(job | {"preprocess": steps, "row_timeout_seconds": 3})
    assert_one_lost(receipt, tmp_path / "out", "preprocess", error_type)


def test_a_device_that_fails_once_costs_no_row(run_job: RunJob, job: dict[str, Any], tmp_path: Path) -> None:
    receipt = run_job(job | {"inference": model("SpoilOnce", kwargs={"mark": str(tmp_path / "mark")})})
    assert sorted(published(receipt, tmp_path / "out")["twice"].to_pylist()) == [2 * x for x in range(ROWS)]
    assert receipt["rows_quarantined"] == 0


def test_out_of_memory_halves_the_batch_for_good_and_says_so(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    receipt = run_job(job | {"inference": model("Small", kwargs={"rows": 5})})
    assert sorted(published(receipt, tmp_path / "out")["twice"].to_pylist()) == [2 * x for x in range(ROWS)]
    told = [i for i in receipt["incidents"] if "out of memory with 16 rows at once, 8 from then on" in i["what"]]
    assert [incident["times"] for incident in told] == [1]


def test_a_row_is_blamed_for_memory_only_where_it_fails_alone(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    receipt = run_job(job | {"inference": model("Small", kwargs={"rows": 1})})
    assert_one_lost(receipt, tmp_path / "out", "infer", "RuntimeError")


def test_a_stream_that_stands_still_fails_and_names_the_stage(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    # Longer than the first task of any stage takes to start: until then it is that one that is waited for.
    stalled = job | {"inference": model("hang"), "row_timeout_seconds": None, "stall_timeout_seconds": 20}
    with pytest.raises(OvernightError, match=r"no row moved .* for 20 s .* for infer: [12] Ray tasks run") as caught:
        run_job(stalled)
    assert (caught.value.stage, caught.value.error_type) == ("infer", "Stalled")
    assert not list((tmp_path / "out").glob("*.parquet"))
