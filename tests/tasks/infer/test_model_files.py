"""Models in a store: the same as from a folder, fetched once, and then loaded without the store."""

import json
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from sklearn.linear_model import LinearRegression

from overnight.tasks.errors import AccessDenied, JobError
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.onnx import OnnxModel
from overnight.tasks.infer.models.sklearn import SklearnModel
from overnight.tasks.infer.models.torch import TorchModel
from overnight.tasks.storage.location import Location
from tests.tasks.faulty_s3 import FaultyS3
from tests.tasks.infer.chat_models import chat_model

pytestmark = pytest.mark.usefixtures("one_thread")
X = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OVERNIGHT_MODEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def upload(folder: Path, place: Location) -> str:
    """Copy the files of a folder; the URI with a slash at its end."""
    for path in folder.rglob("*"):
        if path.is_file():
            (place / path.relative_to(folder).as_posix()).write_bytes(path.read_bytes())
    return f"{place.uri}/"


def chat(model: Any, **settings: Any) -> Chat:
    return Chat(model=str(model), user="{text}", max_new_tokens=4, **settings)


def answers(model: Chat) -> list[str]:
    found: Any = model.load()({"text": np.array(["a b c", "d"], object), "row_id": np.array(["a", "b"], object)})
    return list(found.columns["generated_text"])


def test_a_model_in_a_store_answers_as_the_folder_does(tmp_path: Path, store: FaultyS3, place: Location) -> None:
    folder = chat_model(tmp_path / "model")
    stored = chat(upload(folder, place / "model"))
    stored = pickle.loads(pickle.dumps(stored.pinned(stored.fingerprint())))  # as it travels to a worker
    assert answers(stored) == answers(chat(folder))
    store.always = "drop"  # from now on there is no store
    store.seen.clear()
    assert answers(stored)
    assert store.seen == []


def test_files_of_every_kind_come_from_a_store(tmp_path: Path, place: Location) -> None:
    joblib.dump(LinearRegression().fit(X, X[:, 0]), tmp_path / "line.joblib")
    linear = torch.nn.Linear(4, 2)
    save_file(linear.state_dict(), tmp_path / "linear.safetensors")
    matrix = helper.make_tensor("matrix", TensorProto.FLOAT, (4, 2), np.ones((4, 2), np.float32).tobytes(), raw=True)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size]) for name, size in (("x", 4), ("sum", 2))
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "matrix"], ["sum"])], "sum", values[:1], values[1:], [matrix]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    outside = {"save_as_external_data": True, "location": "sum.onnx.data", "size_threshold": 0}
    onnx.save(made, tmp_path / "sum.onnx", **outside)
    uri = upload(tmp_path, place)
    module = {"module": "torch.nn:Linear", "kwargs": {"in_features": 4, "out_features": 2}}
    for stored, column, expected in (
        (SklearnModel(file=f"{uri}line.joblib", columns=["x"]), "prediction", X[:, 0]),
        (OnnxModel(file=f"{uri}sum.onnx", columns=["x"]), "sum", np.repeat(X.sum(1)[:, None], 2, 1)),
        (
            TorchModel(**module, weights=f"{uri}linear.safetensors", columns=["x"]),
            "output",
            linear(torch.from_numpy(X)).detach().numpy(),
        ),
    ):
        found: Any = stored.pinned(stored.fingerprint()).load()({"x": X})
        np.testing.assert_allclose(found[column], expected, atol=1e-5)
    assert OnnxModel(file=f"{uri}sum.onnx", columns=["x"]).fingerprint().keys() == {"sum.onnx", "sum.onnx.data"}


def test_the_fingerprint_changes_with_a_file_and_not_with_a_copy_and_a_change_during_a_run_ends_it(
    tmp_path: Path, place: Location
) -> None:
    joblib.dump(LinearRegression().fit(X, X[:, 0]), tmp_path / "line.joblib")
    stored = SklearnModel(file=f"{upload(tmp_path, place)}line.joblib", columns=["x"])
    before = stored.fingerprint()
    upload(tmp_path, place)
    assert stored.fingerprint() == before
    (place / "line.joblib").write_bytes(b"another model")
    assert stored.fingerprint() != before
    with pytest.raises(JobError, match="its files changed after they were listed"):
        stored.pinned(before).load()


def test_what_is_no_model_is_refused_by_the_listing(store: FaultyS3, place: Location, cache: Path) -> None:
    (place / "model/weights.bin").write_bytes(b"x")
    for uri, found in (
        (f"{place}/no-such/", "found nothing there"),
        (f"{place}/model", "found a folder that begins with weights.bin"),
        (f"{place}/model/weights.bin", "found a single file"),
        ("s3://no-such-bucket-of-models/clip", "found nothing there"),
    ):
        with pytest.raises(JobError, match=f"model {uri}: .* {found}"):
            model_location.fingerprint(uri)
    for name, found in (("model", "a folder"), ("model/b.joblib", "nothing")):
        with pytest.raises(JobError, match=f"expected a model's file, found {found} there"):
            SklearnModel(file=f"{place}/{name}", columns=["x"]).fingerprint()
    store.always = "forbid"
    with pytest.raises(AccessDenied, match=f"no permission to list {place}/model"):
        model_location.fingerprint(f"{place}/model")
    assert not cache.exists()


def test_no_message_has_the_value_of_a_variable_or_a_key_of_the_uri(
    place: Location, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "hidden/config.json").write_bytes(b"{}")
    monkeypatch.setenv("MODELS", f"{place}/hidden")
    checkpoint = model_location.find("${MODELS}")
    messages = f"{checkpoint.unusable(f'in {checkpoint.location}')} {caplog.text}"
    assert "fetching ${MODELS}" in messages
    for uri in ("${MODELS}/no-such", "s3://no-such-bucket/model?token=sEcReT", "s3://key:sEcReT@bucket/m"):
        with pytest.raises(JobError) as caught:
            model_location.fingerprint(uri)
        messages += str(caught.value)
    assert "hidden" not in messages
    assert "sEcReT" not in messages
    assert "model s3://***:***@bucket/m: cannot be listed: ParamVal" in messages


def test_a_revision_is_for_hub_names_alone(tmp_path: Path, place: Location) -> None:
    uri = upload(chat_model(tmp_path / "model"), place / "model")
    for model in (uri, str(tmp_path / "model")):
        for refused in (model_location.fingerprint, model_location.find):
            with pytest.raises(JobError, match=f"revision: expected none, because model {model} is a folder"):
                refused(model, "v1")


CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own"

class Own(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_code_in_a_folder_runs_if_it_is_trusted_and_is_part_of_the_fingerprint(
    tmp_path: Path, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = chat_model(tmp_path / "model")
    plain = answers(chat(folder))
    (folder / "own.py").write_text(CODE)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    for model in (str(folder), upload(folder, place / "model")):
        trusting = chat(model, trust_remote_code=True)
        assert "own.py" in trusting.fingerprint()
        assert answers(trusting) == plain
        with pytest.raises(JobError, match=r"trust_remote_code|model type `own`"):
            answers(chat(model))
