"""Files of a model are data: code that they name, pickle or stand beside is not run when it is loaded."""

import contextlib
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from overnight.tasks.errors import JobError
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.infer.models.sklearn import SklearnModel
from overnight.tasks.ingest.sources.numpy import Numpy
from tests.contracts.models import user_models
from tests.contracts.models.case import ModelLeaf
from tests.contracts.models.suite import SUITE
from tests.contracts.models.test_results import BY_VLLM, Build
from tests.tasks.ingest.conftest import read_all

pytestmark = pytest.mark.usefixtures("one_thread")
USER = user_models.__name__
ENDPOINTS = ("openai", "endpoint_embedding", "rerank")
NO_FOLDER = "its model is no folder of transformers: its own tests have its files"
CLASSES = ("Config", "Tokenizer", "Processor", "ImageProcessor", "FeatureExtractor", "VideoProcessor", "Model")
TASKS = ("ForCausalLM", "ForImageClassification", "ForObjectDetection", "ForSequenceClassification")
NAMED = {
    **{f"Auto{name}": "canary.Canary" for name in CLASSES},
    **{f"AutoModel{task}": "canary.Canary" for task in TASKS},
}
CODE = "from pathlib import Path\nPath('sung').touch()\nclass Canary: pass\n"


class Song:
    """Makes a folder where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("sung",)


def load(case: Any, folder: Path) -> None:
    with contextlib.suppress(JobError):  # the library refuses the file, or has no class of that name
        case.model(model=str(folder)).load()


@SUITE.promise(
    "code that a file of the model names, or that is pickled in its weights, is not run",
    **dict.fromkeys(("keras", "onnx", *ENDPOINTS, "python", "sklearn", "torch", *BY_VLLM), NO_FOLDER),
)
def test_code_that_the_files_of_a_model_name_is_not_run(
    leaf: ModelLeaf, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = build(leaf)
    monkeypatch.chdir(tmp_path)
    whole = Path(case.settings["model"])
    names = [path.relative_to(whole) for path in sorted(whole.rglob("*.json"))]
    for name in [name for name in names if isinstance(json.loads((whole / name).read_text()), dict)]:
        folder = tmp_path / f"model-{str(name).replace('/', '-')}"
        shutil.copytree(whole, folder)
        for place in (folder, tmp_path, folder / name.parent):
            (place / "canary.py").write_text(CODE)
        content = json.loads((folder / name).read_text())
        content |= {
            "auto_map": NAMED,
            "custom_generate": "canary.Canary",
            "custom_pipelines": {"x": {"impl": "canary"}},
        }
        (folder / name).write_text(json.dumps(content))
        load(case, folder)
        assert not Path("sung").exists(), name
    for name in ("pytorch_model.bin", "model.safetensors"):
        folder = tmp_path / f"pickled-{name}"
        shutil.copytree(whole, folder)
        for path in folder.rglob("*.safetensors"):
            path.unlink()
        torch.save({"weight": Song()}, folder / name)
        with pytest.raises(JobError):
            case.model(model=str(folder)).load()
        assert not Path("sung").exists(), name


PACKED: dict[str, list[dict[str, str]]] = {
    "torch": [{"module": f"{USER}:Scorer", "weights": "bomb.pth"}, {"program": "bomb.pt2"}, {"program": "bomb.pt"}],
    "keras": [{"file": "bomb.keras"}],
    "sklearn": [{"file": "bomb.joblib"}],
}


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive, as PyTorch and Keras write them, that unpacks to a gigabyte."""
    file = tmp_path_factory.mktemp("bomb") / "bomb"
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("archive/data/0", "w") as member,
    ):
        for _ in range(64):
            member.write(bytes(2**24))
    return file


@SUITE.promise(
    "a file of the model that unpacks to 1,000 times its size is refused before it is unpacked",
    onnx="its file is not packed",
    python="the code decides what it loads",
    **dict.fromkeys(ENDPOINTS, "its model is not in files of this machine"),
    **dict.fromkeys(BY_VLLM, "vLLM loads its model in a process of its own"),
)
def test_a_model_that_unpacks_to_1000_times_its_size_is_refused_before_it_is_unpacked(
    leaf: ModelLeaf, build: Build, bomb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = build(leaf)
    models = []
    for settings in PACKED.get(case.kind, ()):
        [name] = [value for value in settings.values() if value.startswith("bomb.")]
        os.link(bomb, name)
        known = {"kind": case.kind, "columns": ["x"], **settings}
        models.append(TypeAdapter(AnyPredictor).validate_python(known))
    if not models:
        shutil.copytree(case.settings["model"], "model", ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
        os.link(bomb, "model/pytorch_model.bin")
        models = [case.model(model="model")]
    for model in models:
        with pytest.raises(JobError, match="unpack"):
            model.load()


def test_an_adapter_beside_a_model_runs_no_code(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = build(SUITE.adapters["text_embedding"])
    shutil.copytree(case.settings["model"], tmp_path / "model")
    for place in (tmp_path, tmp_path / "model"):
        (place / "canary.py").write_text(CODE)
    mapping = {"base_model_class": "Canary", "parent_library": "canary"}
    settings = {"peft_type": "LORA", "auto_mapping": mapping, "base_model_name_or_path": str(tmp_path)}
    (tmp_path / "model/adapter_config.json").write_text(json.dumps(settings))
    load(case, tmp_path / "model")
    assert not Path("sung").exists()


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_objects_in_a_file_of_numpy_are_not_unpickled(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    save = np.save if name == "a.npy" else np.savez
    save(tmp_path / "in" / name, np.array([Song()], object))
    [reason] = read_all(Numpy(path=str(tmp_path / "in"))).bad.values()
    assert "not unpickled" in reason
    assert not Path("sung").exists()


def test_a_file_of_scikit_learn_is_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.joblib").write_bytes(pickle.dumps(Song()))
    with pytest.raises(JobError, match="predict"):
        SklearnModel(file=str(tmp_path / "model.joblib"), columns=["x"]).load()
    assert Path("sung").exists()
