"""Batches are halved when the allocator of PyTorch or onnxruntime refuses memory."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pytest
from onnx import TensorProto, helper

from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.onnx import OnnxModel
from overnight.tasks.infer.models.torch import TorchModel
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.rows import rebatch
from overnight.tasks.workers.row_isolation import TOGETHER
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

HUGE = 10**13  # numbers, which no machine has room for
CODE = f"""
from torch import nn, zeros


class OfTorch(nn.Module):
    def forward(self, x):
        return x + zeros({HUGE} * (len(x) > 6 or -1 in x)).sum()
"""


def write_onnx(path: Path) -> None:
    """Write a model that returns x, and takes as much as `HUGE` for more than 6 rows."""
    names = {"seven": [7], "huge": [HUGE]}
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["x"], ["rows"]),
            helper.make_node("Div", ["rows", "seven"], ["calls"]),
            helper.make_node("Mul", ["calls", "huge"], ["size"]),
            helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
            helper.make_node("ReduceSum", ["zeros"], ["sum"]),
            helper.make_node("Add", ["x", "sum"], ["output"]),
        ],
        "heavy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows"])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["rows"])],
        [helper.make_tensor(name, TensorProto.INT64, [1], value) for name, value in names.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


@pytest.mark.parametrize("of", [pytest.param("torch", marks=pytest.mark.needs_torch), "onnx"])
def test_a_batch_that_an_allocator_refuses_is_halved_and_a_row_is_lost_only_if_it_is_too_large_alone(
    of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "heavy_models.py").write_text(CODE)
    write_onnx(tmp_path / "heavy.onnx")
    settings: dict[str, Any] = {"batch_size": 64}
    models: dict[str, Predictor] = {
        "torch": TorchModel(module="heavy_models:OfTorch", columns=["x"], **settings),
        "onnx": OnnxModel(file=str(tmp_path / "heavy.onnx"), columns=["x"], **settings),
    }
    x = np.arange(24, dtype=np.float32)
    lost = [] if of == "onnx" else [5]
    x[lost] = -1
    worker = Link(models[of]).load(make_run(tmp_path))
    block = source_block(0, 0, pa.table({"row_id": [f"a#{row}" for row in range(24)], "x": x}))
    done = rebatch.joined(worker.on([block], TOGETHER))
    assert worker.batch.reason.startswith("out of memory with ")
    assert [row for row, error in enumerate(done["__error_message"].to_pylist()) if error] == lost
    assert np.delete(done["output"].to_numpy(), lost).tolist() == np.delete(x, lost).tolist()
