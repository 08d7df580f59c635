"""A job of four models on devices that Ray declares and that no library finds, as on a machine without drivers.

The session's Ray declares two GPUs of the type T4, and two NPUs. The models may fall back to the CPU.
"""

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from PIL import Image
from prefect.artifacts import Artifact

from tests import jobs
from tests.conftest import WORKER_PATH
from tests.contracts.models.adapters.pictures import resnet, saved
from tests.flows.conftest import RunJob, assert_settled, published

pytestmark = pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator is found")

# The last picture waits in preprocessing until a model has run in the stream, and not only in the trial. The model
# `second` waits in the stream until the worker of `looks` has given its GPU back, because no picture is left for it.
CODE = """
import os
import time
from pathlib import Path

import ray
import torch

TRIED = 8  # pictures, before the stream


def in_stream(log):
    return (Path(log) / "stream").exists()


def free_gpus():
    return ray.available_resources().get("GPU", 0)


def wait_until(happened, what):
    until = time.monotonic() + 250
    while not happened():
        assert time.monotonic() < until, what
        time.sleep(0.05)


class Reserved(torch.nn.Module):
    def __init__(self, log, waits=False):
        super().__init__()
        self.log, self.waits = Path(log), waits

    def forward(self, confidence, number):
        if (number >= TRIED).any():
            (self.log / "stream").touch()
            if self.waits:
                wait_until(lambda: free_gpus() >= 1, "a worker without rows to come kept its GPU")
        return torch.full_like(confidence, float(os.environ["CUDA_VISIBLE_DEVICES"]))


def wait_for_a_model(batch, log):
    free = [None] * len(batch["uri"])
    if batch["uri"][-1].endswith("19.png"):
        wait_until(lambda: in_stream(log) and not free_gpus(), "no model ran while pictures were prepared")
        free[-1] = free_gpus()
    return {"free_gpus": free, "number": [float(uri[-6:-4]) for uri in batch["uri"]]}
"""
CPU = "reserves an accelerator, finds none on this node. The model runs on the CPU, because cpu_fallback allows it."


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """A job of twenty pictures: one model on a whole GPU of a type, two that share the other, and one on an NPU."""
    (WORKER_PATH / "reserving.py").write_text(CODE)
    saved(tmp_path / "resnet", resnet())
    value = helper.make_tensor_value_info("confidence", TensorProto.FLOAT, ["rows"])
    same = helper.make_tensor_value_info("same", TensorProto.FLOAT, ["rows"])
    graph = helper.make_graph([helper.make_node("Identity", ["confidence"], ["same"])], "same", [value], [same])
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "same.onnx")
    for folder in ("in", "log", "second"):
        (tmp_path / folder).mkdir()
    for number in range(20):
        Image.fromarray(np.full((40, 40, 3), number * 12, np.uint8)).save(tmp_path / f"in/{number:02d}.png")
    log, waits = {"log": str(tmp_path / "log")}, {"log": str(tmp_path / "second"), "waits": True}
    reads = {"columns": ["looks_confidence"]}
    half: dict[str, Any] = {"kind": "torch", "module": "reserving:Reserved", "outputs": ["gpu"], "num_gpus": 0.5}
    half["columns"] = ["looks_confidence", "number"]
    whole = {"kind": "image_classification", "model": str(tmp_path / "resnet"), "num_gpus": 1, "accelerator_type": "T4"}
    models = [
        {"name": "looks", **whole},
        {"name": "first", **half, "kwargs": log},
        {"name": "second", **half, "kwargs": waits},
        {"name": "npu", "kind": "onnx", "file": str(tmp_path / "same.onnx"), "resources": {"NPU": 1}, **reads},
    ]
    common = {"placement": "separate", "cpu_fallback": True, "workers": 1, "batch_size": 4}
    return jobs.job(
        tmp_path,
        name="devices",
        source={"kind": "images", "path": f"{tmp_path}/in"},
        preprocess=[{"kind": "python", "target": "reserving:wait_for_a_model", "kwargs": log}],
        inference=[model | common for model in models],
    )


@pytest.mark.slow
def test_models_reserve_and_share_devices_run_while_rows_are_prepared_give_them_back_and_fall_back_with_a_warning(
    job: dict[str, Any], run_job: RunJob, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receipt = run_job(job)
    assert_settled(receipt, written=20)
    table = published(receipt, tmp_path / "out")
    assert len(set(table["first_gpu"].to_pylist() + table["second_gpu"].to_pylist())) == 1
    assert [free for free in table["free_gpus"].to_pylist() if free is not None] == [0]
    assert table["npu_same"].to_pylist() == table["looks_confidence"].to_pylist()

    plan: Any = Artifact.get("devices-plan")
    half, whole = "0.25 CPU, 0.5 GPU", "0.25 CPU, 1 GPU, 0.001 accelerator_type:T4"
    reserved = dict(re.findall(r"\| (\w+): a worker reserves \| ([^|]+) \|", plan.data))
    assert reserved == {"looks": whole, "first": half, "second": half, "npu": "0.25 CPU, 1 NPU"}
    assert "rows are prepared | in Ray tasks of 1 CPU" in plan.data

    times = {
        stage: [datetime.fromisoformat(measures[name]) for name in ("started_at", "finished_at")]
        for stage, measures in receipt["stages"].items()
        if measures["started_at"]
    }
    assert times.keys() == {"ingest", "preprocess", "infer", "write"}
    assert times["preprocess"][0] < times["infer"][0] < times["preprocess"][1] < times["infer"][1]
    performance = receipt["performance"]
    assert 0 < performance["gpus_busy"] < 1
    assert performance["device_seconds"] == receipt["stages"]["infer"]["seconds"]
    assert performance["peak_device_memory_bytes"] is None

    warnings = [re.sub(r"but .* finds none", "finds none", warning) for warning in receipt["warnings"]]
    settings = ["looks: num_gpus: 1", "first: num_gpus: 0.5", "second: num_gpus: 0.5", "npu: resources: NPU: 1"]
    assert warnings == [f"{setting} {CPU}" for setting in settings]
    assert all(f"infer: {warning}" in caplog.text for warning in receipt["warnings"])
