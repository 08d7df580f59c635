"""PyTorch: what the suite of models does not hold."""

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.models.torch import TorchModel
from tests.contracts.models.adapters.arrays import GIVEN, USER, WEIGHT, X, exported, pickled_weights
from tests.contracts.models.user_models import ByName, Scorer

IDENTITY = "torch.nn:Identity"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a program and the weights of its module."""
    monkeypatch.chdir(tmp_path)
    exported(Scorer().eval(), tmp_path)
    pickled_weights(ByName().eval(), tmp_path)
    (tmp_path / "torn.pt2").write_bytes((tmp_path / "scorer.pt2").read_bytes()[:500])
    return tmp_path


def run(**settings: Any) -> dict[str, Any]:
    return TorchModel(**{"columns": ["x", "weight"], **settings}).load()({"x": X, "weight": WEIGHT})


def test_outputs_need_names_and_a_value_for_each_row(here: Path) -> None:
    by_name = {"module": f"{USER}:ByName", "weights": "weights.pt"}
    assert run(**by_name, outputs=["twice"]).keys() == {"twice"}
    with pytest.raises(ContractError, match=r"outputs: expected names among scores, twice.*found nonsense"):
        run(**by_name, outputs=["nonsense"])
    with pytest.raises(ContractError, match="outputs: expected 2 names, one for each output"):
        run(program="scorer.pt2")
    assert run(module=f"{USER}:Named", outputs=["a", "b"]).keys() == {"a", "b"}
    torch.jit.trace(torch.nn.Flatten(0), GIVEN[0]).save("flat.pt")
    with pytest.raises(ContractError, match="output 'output': expected 9 values, one per row, found 36"):
        run(program="flat.pt", columns=["x"])


def test_arrays_of_unlike_shapes_keep_their_order() -> None:
    draw, images = np.random.default_rng(0), np.empty(5, object)
    images[:] = [draw.random(shape, np.float32) for shape in ((4, 4), (2, 6), (4, 4), (8, 1), (2, 6))]
    found = TorchModel(module=IDENTITY, columns=["image"]).load()({"image": images})["output"]
    assert [value.tolist() for value in found] == [image.tolist() for image in images]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"program": "nowhere.pt2"}, "nowhere.pt2: expected a model's file, found nothing, looking from"),
        ({"program": "weights.pt"}, "expected a program as torch.jit.save writes it"),
        ({"program": "torn.pt2"}, "expected a program as torch.export.save writes it"),
        ({"module": f"{USER}:Buffered"}, "expected a torch.nn.Module, found Buffered"),
        ({"module": f"{USER}:Scorer", "kwargs": {"width": "x"}}, "raised TypeError"),
        ({"module": f"{USER}:Reused", "weights": "weights.pt"}, "(?s)not the weights of .*Reused: .*linear"),
    ],
)
def test_what_cannot_be_loaded_is_refused(here: Path, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(JobError, match=reason) as raised:
        run(**settings)
    assert raised.value.stage == "infer"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"program": "a.pt2", "module": "a:B"},
        {"program": "a.pt2", "weights": "b"},
        {"program": "a.pt2", "dtype": "float16"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TorchModel(columns=["x"], **settings)


class Attack:
    """Makes a folder where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("attacked",)


@pytest.mark.parametrize("file", ["weights.pt", "scorer.pt2"])
def test_code_that_is_pickled_into_a_models_file_is_not_run(here: Path, file: str) -> None:
    torch.save(Attack(), here / "attack.pt")
    with zipfile.ZipFile(here / "scorer.pt2") as whole, zipfile.ZipFile(here / "evil.pt2", "w") as evil:
        for name in whole.namelist():
            pickled = name.endswith(".pt")
            evil.writestr(name, (here / "attack.pt").read_bytes() if pickled else whole.read(name))
    (here / "attack.pt").rename(here / "weights.pt")
    (here / "evil.pt2").rename(here / "scorer.pt2")
    module = {"module": f"{USER}:Scorer", "weights": file}
    with pytest.raises(JobError, match=r"(?i)weights.only"):
        run(**(module if file == "weights.pt" else {"program": file}))
    assert not (here / "attacked").exists()
