"""What decides a model's results is in its fingerprint, and what `overnight init` offers is loaded here."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from overnight.cli.init_choices import offers
from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.python import PythonPredictor
from overnight.tasks.infer.models.torch import TorchModel
from overnight.tasks.preprocess.steps.python import PythonStep
from tests.contracts.models import user_models
from tests.contracts.models.case import Case, ModelLeaf
from tests.contracts.models.suite import SUITE
from tests.contracts.models.test_results import BY_VLLM, VLLMS, Build

pytestmark = pytest.mark.usefixtures("one_thread")
USER = user_models.__name__
OF_CODE = "its model is the user's code; test_argument_files.py has the files of its kwargs"
REMOTE = "its model is not in files of this machine"
REMOTES = dict.fromkeys(("openai", "endpoint_embedding", "rerank"), REMOTE)


def place_of(settings: dict[str, Any]) -> Path:
    """The model's file or folder."""
    return Path(next(settings[name] for name in ("model", "file", "program", "weights") if name in settings))


@SUITE.promise("each file of the model is in the fingerprint, with its content", **VLLMS, **REMOTES, python=OF_CODE)
def test_each_file_of_a_model_counts(leaf: ModelLeaf, build: Build) -> None:
    case = build(leaf)
    model, place = case.model(), place_of(case.settings)
    before = model.fingerprint()
    for path in [path for path in [place, *sorted(place.rglob("*"))] if path.is_file()]:
        content, times = path.read_bytes(), path.stat()
        assert model.fingerprint() == before
        path.write_bytes(content + b" ")
        assert model.fingerprint() != before, path
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@SUITE.promise(
    "a model that is not there, or damaged, is refused when it is loaded, with its name",
    **VLLMS,
    **REMOTES,
    python=OF_CODE,
)
def test_a_model_that_cannot_be_loaded_is_refused(leaf: ModelLeaf, build: Build, tmp_path: Path) -> None:
    case = build(leaf)
    place = place_of(case.settings)
    name = next(name for name, value in case.settings.items() if value == str(place))
    torn = tmp_path / place.name
    if place.is_dir():
        shutil.copytree(place, torn)
        for path in torn.glob("*.*"):
            path.write_bytes(path.read_bytes()[:60])
    else:
        torn.write_bytes(place.read_bytes()[:60])
    for other in (tmp_path / "nowhere", torn):
        with pytest.raises(JobError) as caught:
            case.model(**{name: str(other)}).load()
        assert caught.value.stage == "infer"
        assert str(other) in str(caught.value)


NO_CHECKPOINT = "it has no checkpoint of transformers"


@SUITE.promise(
    "a checkpoint without one of its weights is refused, instead of a random weight in its place",
    **dict.fromkeys(("keras", "onnx", *REMOTES, "python", "sklearn", "torch", *BY_VLLM), NO_CHECKPOINT),
)
def test_a_missing_weight_is_refused(leaf: ModelLeaf, build: Build, tmp_path: Path) -> None:
    case = build(leaf)
    shutil.copytree(case.settings["model"], tmp_path / "model")
    file = tmp_path / "model/model.safetensors"
    weights = load_file(file)
    del weights[max(name for name in weights if name.endswith("weight") and "pooler" not in name)]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(JobError, match="which would be random"):
        case.model(model=str(tmp_path / "model")).load()


def architecture(case: Case) -> str | None:
    """The model type of a checkpoint."""
    config = Path(case.settings["model"]) / "config.json"
    return json.loads(config.read_text())["model_type"] if config.exists() else None


@pytest.mark.parametrize("kind", sorted(kind for kind, offer in offers().items() if offer.architecture))
def test_what_init_offers_is_of_an_architecture_that_this_suite_loads(kind: str, build: Build) -> None:
    chained = {"object_classification": {"yolos": "object_detection", "vit": "image_classification"}}
    for name in offers()[kind].architecture.split(","):
        leaf = SUITE.adapters[chained.get(kind, {}).get(name, kind)]
        assert any(architecture(build(leaf, form)) == name for form in leaf.forms)


def test_files_that_kwargs_name_are_in_the_fingerprint_of_all_code(
    tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTRACT_PARTS", str(tmp_path))
    s3.create_bucket(Bucket="arguments")
    named = {
        "file": "${CONTRACT_PARTS}/w.bin",
        "object": "s3://arguments/night/w.bin",
        "under": "s3://arguments/night/",
    }
    kwargs = named | {"depth": 20, "none": "s3://arguments/nothing"}
    code: list[Any] = [
        PythonPredictor(target=f"{USER}:Buffered", kwargs=kwargs),
        PythonStep(target=f"{USER}:Buffered", kwargs=kwargs),
        TorchModel(module=f"{USER}:Scorer", columns=["x"], kwargs=kwargs),
    ]
    versions = []
    for content in (b"one", b"two"):
        (tmp_path / "w.bin").write_bytes(content)
        s3.put_object(Bucket="arguments", Key="night/w.bin", Body=content)
        versions.append([leaf.fingerprint() for leaf in code])
    for before, after in zip(*versions, strict=True):
        assert {name for name in after if after[name] != before.get(name)} == {f"kwargs.{name}" for name in named}
        assert after.keys() == before.keys()
