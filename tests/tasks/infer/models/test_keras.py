"""Keras: what the suite of models does not hold, such as its backends."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.models.keras import KerasModel

GIVEN = {"x": np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32), "number": np.arange(9)}
ON_JAX = """
import sys
import numpy as np
from overnight.tasks.infer.models.keras import KerasModel

folder = sys.argv[1]
model = KerasModel(file=f"{folder}/named.keras", columns=["x", "number"], backend="jax")
np.savez(f"{folder}/on_jax.npz", **model.load()(dict(np.load(f"{folder}/given.npz"))))
assert "jax" in sys.modules
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keras")
    x, number = keras.Input((4,), name="x"), keras.Input((), name="number", dtype="int32")
    outputs = {"score": keras.layers.Dense(2)(x), "embedding": keras.layers.Embedding(9, 2)(number)}
    keras.Model([x, number], outputs).save(folder / "named.keras")
    keras.Model(x, keras.layers.Lambda(lambda value: value + 1)(x)).save(folder / "code.keras")
    return folder


def run(folder: Path, **settings: Any) -> dict[str, Any]:
    return KerasModel(**{"file": str(folder / "named.keras"), "columns": ["x", "number"]} | settings).load()(GIVEN)


def test_code_in_a_file_is_not_run(folder: Path) -> None:
    with pytest.raises(JobError, match=r"[Ll]ambda"):
        run(folder, file=str(folder / "code.keras"), columns=["x"])


def test_outputs_are_chosen_by_name_and_whole_numbers_are_not_cut_from_fractions(folder: Path) -> None:
    assert run(folder, outputs=["embedding"]).keys() == {"embedding"}
    with pytest.raises(ContractError, match="expected int32 for the model's input number, found float32"):
        run(folder, columns=["x", "x"])


def test_jax_gives_what_torch_gives(folder: Path) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    np.savez(folder / "given.npz", **GIVEN)
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    subprocess.run([sys.executable, "-c", ON_JAX, str(folder)], env=environment, check=True, timeout=120)
    found = np.load(folder / "on_jax.npz")
    for name, values in run(folder).items():
        np.testing.assert_allclose(found[name], values, atol=1e-6)
