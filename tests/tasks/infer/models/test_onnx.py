"""ONNX: what the suite of models does not hold, such as its providers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.models.onnx import OnnxModel

X = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """scores = x + x, twice = count + count."""
    kinds = {"x": (TensorProto.FLOAT, ["rows", 4]), "count": (TensorProto.INT64, ["rows"])}
    made = {"scores": kinds["x"], "twice": kinds["count"]}
    nodes = [helper.make_node("Add", [name, name], [of]) for name, of in zip(kinds, made, strict=True)]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, *kind) for name, kind in some.items()] for some in (kinds, made)
    )
    graph = helper.make_graph(nodes, "scorer", inputs, outputs)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "scorer.onnx"
    )
    return str(tmp_path / "scorer.onnx")


def run(file: str, x: Any = X, count: Any = None, **settings: Any) -> dict[str, Any]:
    count = np.arange(len(x)) if count is None else count
    return OnnxModel(**{"file": file, "columns": ["x", "count"], **settings}).load()({"x": x, "count": count})


def test_the_job_names_all_outputs_or_none(file: str) -> None:
    assert run(file, outputs=["a", "b"]).keys() == {"a", "b"}
    with pytest.raises(ContractError, match="outputs: expected 2 names"):
        run(file, outputs=["a"])


def test_numbers_become_the_types_that_the_model_names(file: str) -> None:
    found = run(file, (X * 100).astype(np.int16), np.arange(9, dtype=np.uint8))
    assert found["scores"].tolist() == ((X * 100).astype(np.int16) * 2).tolist()
    with pytest.raises(ContractError, match="count: expected int64 for the model's input count, found float32"):
        run(file, count=np.zeros(9, np.float32))


def test_columns_are_one_for_each_input(file: str) -> None:
    with pytest.raises(JobError, match=r"x \(tensor\(float\)\), count"):
        run(file, columns=["x"])


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
    assert run(file, **reserves)["twice"].tolist() == list(range(0, 18, 2))
    assert asked == [*providers, "CPUExecutionProvider"]


@pytest.mark.parametrize("available", [[], ["ROCMExecutionProvider"], ["CANNExecutionProvider"]])
def test_a_device_for_which_no_provider_is_there_or_starts_is_an_error(
    file: str, monkeypatch: pytest.MonkeyPatch, available: list[str]
) -> None:
    """This build of onnxruntime has the CPU's alone: others that it is said to have do not start."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [*available, "CPUExecutionProvider"])
    with pytest.raises(JobError, match=r"resources: NPU: 1 reserves an accelerator, but onnxruntime"):
        run(file, resources={"NPU": 1})
    assert run(file, resources={"NPU": 1}, cpu_fallback=True)["twice"].tolist() == list(range(0, 18, 2))


def test_weights_beside_the_file_belong_to_the_fingerprint(file: str) -> None:
    first = OnnxModel(file=file, columns=["x"]).fingerprint()
    Path(f"{file}.data").write_bytes(b"weights")
    assert OnnxModel(file=file, columns=["x"]).fingerprint().keys() - first.keys() == {"scorer.onnx.data"}
