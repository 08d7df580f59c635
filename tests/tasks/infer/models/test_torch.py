"""PyTorch: what the suite of models does not hold."""

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.models.torch import TorchModel
from tests.contracts.models.adapters.arrays import GIVEN, USER, WEIGHT, X, exported, pickled_weights
from tests.contracts.models.user_models import ByName, Scorer

BY_NAME = {"module": f"{USER}:ByName", "weights": "weights.pt"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a program and the weights of its module."""
    monkeypatch.chdir(tmp_path)
    exported(Scorer().eval(), tmp_path)
    pickled_weights(ByName().eval(), tmp_path)
    (tmp_path / "torn.pt2").write_bytes((tmp_path / "scorer.pt2").read_bytes()[:500])
    torch.jit.trace(torch.nn.Flatten(0), GIVEN[0]).save("flat.pt")
    return tmp_path


def run(**settings: Any) -> dict[str, Any]:
    return TorchModel(**{"columns": ["x", "weight"], **settings}).load()({"x": X, "weight": WEIGHT})


def test_outputs_are_chosen_by_name_and_those_of_a_tuple_are_named_in_order(here: Path) -> None:
    assert run(**BY_NAME, outputs=["twice"]).keys() == {"twice"}
    assert run(module=f"{USER}:Named", outputs=["a", "b"]).keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("settings", "kind", "reason"),
    [
        (BY_NAME | {"outputs": ["nonsense"]}, ContractError, "among scores, twice.*found nonsense"),
        ({"program": "scorer.pt2"}, ContractError, "outputs: expected 2 names"),
        ({"program": "flat.pt", "columns": ["x"]}, ContractError, "expected 9 values, one per row, found 36"),
        ({"program": "nowhere.pt2"}, JobError, "nowhere.pt2: .* found nothing, looking from"),
        ({"program": "weights.pt"}, JobError, "expected a program as torch.jit.save writes it"),
        ({"program": "torn.pt2"}, JobError, "expected a program as torch.export.save writes it"),
        ({"module": f"{USER}:Buffered"}, JobError, "expected a torch.nn.Module, found Buffered"),
        ({"module": f"{USER}:Scorer", "kwargs": {"width": "x"}}, JobError, "raised TypeError"),
        ({"module": f"{USER}:Reused", "weights": "weights.pt"}, JobError, "(?s)not the weights of .*Reused: .*linear"),
    ],
)
def test_a_model_that_does_not_fit_its_settings_is_refused(
    here: Path, settings: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason) as raised:
        run(**settings)
    assert raised.value.stage == "infer"


@pytest.mark.parametrize(
    "settings",
    [{}, {"program": "a", "module": "a:B"}, {"program": "a", "weights": "b"}, {"program": "a", "dtype": "float16"}],
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
            evil.writestr(name, (here / "attack.pt").read_bytes() if name.endswith(".pt") else whole.read(name))
    (here / "attack.pt").rename(here / "weights.pt")
    (here / "evil.pt2").rename(here / "scorer.pt2")
    module = {"module": f"{USER}:Scorer", "weights": file}
    with pytest.raises(JobError, match=r"(?i)weights.only"):
        run(**(module if file == "weights.pt" else {"program": file}))
    assert not (here / "attacked").exists()
