"""PyTorch: what the suite of models does not hold."""

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.torch import TorchModel
from tests.contracts.models.adapters.arrays import USER, exported
from tests.contracts.models.user_models import Scorer


class Attack:
    """Makes a folder where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("attacked",)


@pytest.mark.parametrize("file", ["weights.pt", "scorer.pt2"])
def test_code_that_is_pickled_into_a_models_file_is_not_run(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(Attack(), "weights.pt")
    exported(Scorer().eval(), tmp_path)
    with zipfile.ZipFile("scorer.pt2") as whole, zipfile.ZipFile("evil.pt2", "w") as evil:
        for name in whole.namelist():
            evil.writestr(name, Path("weights.pt").read_bytes() if name.endswith(".pt") else whole.read(name))
    settings = {"module": f"{USER}:Scorer", "weights": file} if file == "weights.pt" else {"program": "evil.pt2"}
    with pytest.raises(JobError, match=r"(?i)weights.only"):
        TorchModel(columns=["x"], **settings).load()
    assert not Path("attacked").exists()
