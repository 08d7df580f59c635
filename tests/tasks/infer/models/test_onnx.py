"""ONNX: what the suite of models does not hold, such as its providers. It needs no PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.onnx import OnnxModel

X = np.ones((9, 4), np.float32)


@pytest.fixture
def file(tmp_path: Path) -> str:
    given, twice = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in ("x", "twice"))
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["twice"])], "doubles", [given], [twice])
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "scorer.onnx")
    return str(tmp_path / "scorer.onnx")


def run(file: str, x: Any = X, **settings: Any) -> list[Any]:
    found: list[Any] = OnnxModel(file=file, columns=["x"], **settings).load()({"x": x})["twice"].tolist()
    return found


def test_numbers_become_the_type_that_the_model_names(file: str) -> None:
    assert run(file, X.astype(np.int16)) == run(file) == [[2.0] * 4] * 9


BUILT = [f"{name}ExecutionProvider" for name in ("Tensorrt", "ROCM", "OpenVINO", "CANN", "Dnnl", "Azure", "CPU")]


@pytest.mark.parametrize(
    ("reserves", "providers"),
    [
        ({}, []),
        ({"resources": {"licence": 1}}, []),
        ({"num_gpus": 0.5}, [(BUILT[0], {}), (BUILT[1], {}), (BUILT[2], {"device_type": "GPU"})]),
        ({"resources": {"NPU": 1}}, [(BUILT[2], {"device_type": "NPU"}), (BUILT[3], {})]),
    ],
)
def test_a_session_is_asked_of_the_providers_for_what_the_worker_reserves(
    file: str, monkeypatch: pytest.MonkeyPatch, reserves: dict[str, Any], providers: list[Any]
) -> None:
    asked: list[Any] = []

    class Session(onnxruntime.InferenceSession):
        def __init__(self, *args: Any, providers: list[Any]) -> None:
            asked.extend(providers)
            super().__init__(*args, providers=["CPUExecutionProvider"])

        def get_providers(self) -> list[Any]:
            return asked

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: BUILT)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    assert run(file, **reserves) == [[2.0] * 4] * 9
    assert asked == [*providers, "CPUExecutionProvider"]


@pytest.mark.parametrize("available", [[], ["ROCMExecutionProvider"], ["CANNExecutionProvider"]])
def test_a_device_for_which_no_provider_is_there_or_starts_is_an_error(
    file: str, monkeypatch: pytest.MonkeyPatch, available: list[str]
) -> None:
    """This build of onnxruntime has the CPU's alone: others that it is said to have do not start."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [*available, "CPUExecutionProvider"])
    with pytest.raises(JobError, match=r"resources: NPU: 1 reserves an accelerator, but onnxruntime"):
        run(file, resources={"NPU": 1})
    assert run(file, resources={"NPU": 1}, cpu_fallback=True) == [[2.0] * 4] * 9


def test_weights_beside_the_file_belong_to_the_fingerprint(file: str) -> None:
    first = OnnxModel(file=file, columns=["x"]).fingerprint()
    Path(f"{file}.data").write_bytes(b"weights")
    assert OnnxModel(file=file, columns=["x"]).fingerprint().keys() - first.keys() == {"scorer.onnx.data"}
