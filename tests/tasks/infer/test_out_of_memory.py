"""Batches are halved when the allocator of PyTorch or onnxruntime refuses memory, under a real limit."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

SPARE_BYTES = 400 * 2**20  # of address space that a child process may take beyond its own
ROW_MIB, TOO_LARGE_MIB = 32, 4000  # what a row takes in a model; the row that takes more than there is
OF_TORCH = """
import torch


class OfTorch(torch.nn.Module):
    def forward(self, mebibytes):
        return mebibytes + torch.zeros(int(mebibytes.sum()), 2**18).sum()
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
from overnight.tasks.infer.models.torch import TorchModel
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import rebatch
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

folder, of, spare, rows = *sys.argv[1:3], *map(json.loads, sys.argv[3:])
sys.path.append(folder)
made = {"torch": (TorchModel, {"module": "of_torch:OfTorch"}), "onnx": (OnnxModel, {"file": f"{folder}/heavy.onnx"})}
kind, settings = made[of]
table = pa.table({"row_id": [f"a#{row}" for row in range(len(rows))], "mebibytes": np.array(rows, np.float32)})
worker = Worker(Link(kind(**settings, columns=["mebibytes"], batch_size=64)), make_run(folder))
list(worker(source_block(0, 0, table)[:1]))  # what the libraries allocate at the first call
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + spare, resource.RLIM_INFINITY))
done = rebatch.joined(worker(source_block(0, 0, table)))
failed = [error is not None for error in done["__error_message"].to_pylist()]
print(json.dumps([worker.is_short_of_memory, done["output"].to_pylist(), failed]))
"""


def write_onnx(path: Path) -> None:
    """Write a model that takes `ROW_MIB` for a row, and returns the row."""
    wide, floats = np.ones((1, ROW_MIB * 2**18), np.float32), (TensorProto.FLOAT, ["rows"])
    graph = helper.make_graph(
        [
            helper.make_node("Unsqueeze", ["mebibytes", "one"], ["column"]),
            helper.make_node("MatMul", ["column", "wide"], ["matrix"]),
            helper.make_node("ReduceMax", ["matrix", "one"], ["output"], keepdims=0),
        ],
        "heavy",
        [helper.make_tensor_value_info("mebibytes", *floats)],
        [helper.make_tensor_value_info("output", *floats)],
        [
            helper.make_tensor("wide", TensorProto.FLOAT, wide.shape, wide.tobytes(), raw=True),
            helper.make_tensor("one", TensorProto.INT64, (1,), [1]),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space of a process as Linux does")
@pytest.mark.parametrize(
    ("of", "rows"),
    [
        pytest.param("torch", [ROW_MIB] * 5 + [TOO_LARGE_MIB] + [ROW_MIB] * 18, marks=pytest.mark.needs_torch),
        ("onnx", [ROW_MIB] * 24),
    ],
)
def test_a_batch_that_an_allocator_refuses_is_halved_and_a_row_is_lost_only_if_it_is_too_large_alone(
    of: str, rows: list[int], tmp_path: Path
) -> None:
    (tmp_path / "of_torch.py").write_text(OF_TORCH)
    write_onnx(tmp_path / "heavy.onnx")
    command = [sys.executable, "-c", CHILD, str(tmp_path), of, str(SPARE_BYTES), json.dumps(rows)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
    is_short, made, failed = json.loads(child.stdout.splitlines()[-1])
    assert is_short
    assert failed == [row == TOO_LARGE_MIB for row in rows]
    assert [value for value, has_failed in zip(made, failed, strict=True) if not has_failed] == [
        row for row in rows if row == ROW_MIB
    ]
