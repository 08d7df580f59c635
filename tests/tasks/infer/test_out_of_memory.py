"""Batches are halved when an allocator refuses memory: that of PyTorch, NumPy or onnxruntime, under a real limit."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

SPARE_BYTES = 400 * 2**20  # of address space that a child process may take beyond its own
ROW_MIB, TOO_LARGE = 32, 5  # what a row takes in a model; the row that takes more than there is
OF_TORCH = """
import torch


class OfTorch(torch.nn.Module):
    def forward(self, mebibytes):
        return mebibytes + torch.zeros(int(mebibytes.sum()), 2**18).sum()
"""
OF_NUMPY = """
import numpy as np


def of_numpy(batch):
    return {"output": batch["mebibytes"] + np.zeros((int(batch["mebibytes"].sum()), 2**18), np.float32).sum()}
"""
CHILD = """
import json
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.onnx import OnnxModel
from overnight.tasks.infer.models.python import PythonPredictor
from overnight.tasks.infer.models.torch import TorchModel
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import rebatch
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

folder, kind, spare = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.path.append(str(folder))
model = {
    "torch": lambda: TorchModel(module="of_torch:OfTorch", columns=["mebibytes"], batch_size=64),
    "python": lambda: PythonPredictor(target="of_numpy:of_numpy", batch_size=64),
    "onnx": lambda: OnnxModel(file=str(folder / "heavy.onnx"), columns=["mebibytes"], batch_size=64),
}[kind]()
mebibytes = np.array(json.loads(sys.argv[4]), np.float32)
table = pa.table({"row_id": [f"a#{row}" for row in range(len(mebibytes))], "mebibytes": mebibytes})
worker = Worker(Link(model), make_run(folder))
list(worker(source_block(0, 0, table)[:1]))  # what the libraries allocate at the first call
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + spare, resource.RLIM_INFINITY))
done = rebatch.joined(worker(source_block(0, 0, table)))
print(json.dumps([worker.is_short_of_memory, done["output"].to_pylist(), done["__error_message"].to_pylist()]))
"""


def write_onnx(path: Path) -> None:
    """Write a model that takes `ROW_MIB` for a row, and returns the row."""
    wide = np.ones((1, ROW_MIB * 2**18), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Unsqueeze", ["mebibytes", "one"], ["column"]),
            helper.make_node("MatMul", ["column", "wide"], ["matrix"]),
            helper.make_node("ReduceMax", ["matrix", "one"], ["output"], keepdims=0),
        ],
        "heavy",
        [helper.make_tensor_value_info("mebibytes", TensorProto.FLOAT, ["rows"])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["rows"])],
        [
            helper.make_tensor("wide", TensorProto.FLOAT, wide.shape, wide.tobytes(), raw=True),
            helper.make_tensor("one", TensorProto.INT64, (1,), [1]),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space of a process as Linux does")
@pytest.mark.parametrize("kind", [pytest.param("torch", marks=pytest.mark.needs_torch), "python", "onnx"])
def test_a_batch_that_an_allocator_refuses_is_halved_and_a_row_is_lost_only_if_it_is_too_large_alone(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "of_torch.py").write_text(OF_TORCH)
    (tmp_path / "of_numpy.py").write_text(OF_NUMPY)
    write_onnx(tmp_path / "heavy.onnx")
    rows = [ROW_MIB] * 24
    if kind != "onnx":
        rows[TOO_LARGE] = 4000
    command = [sys.executable, "-c", CHILD, str(tmp_path), kind, str(SPARE_BYTES), json.dumps(rows)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
    is_short, made, errors = json.loads(child.stdout.splitlines()[-1])
    assert is_short
    assert [row for row, error in enumerate(errors) if error] == ([] if kind == "onnx" else [TOO_LARGE])
    assert [value for row, value in enumerate(made) if not errors[row]] == [ROW_MIB] * (24 - (kind != "onnx"))
