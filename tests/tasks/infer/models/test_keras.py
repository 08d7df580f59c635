"""Keras models give, row for row, what they give when they are called."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.keras import KerasModel

X = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
WEIGHT = np.arange(9, dtype=np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two inputs whose outputs are a dict, one with a list of them, and one with a single output."""
    folder = tmp_path_factory.mktemp("keras")
    keras.utils.set_random_seed(0)
    x, weight = keras.Input((4,), name="x"), keras.Input((), name="weight")
    score = keras.layers.Dense(2)(x)
    keras.Model([x, weight], {"score": score, "twice": weight * 2}).save(folder / "named.keras")
    keras.Model([x, weight], [score, weight * 2]).save(folder / "listed.keras")
    keras.Model(x, score).save(folder / "single.keras")
    return folder


def run(saved: Path, name: str, columns: tuple[str, ...] = ("x", "weight"), **settings: Any) -> dict[str, Any]:
    model = KerasModel(file=str(saved / f"{name}.keras"), columns=list(columns), **settings)
    return model.load()({"x": X, "weight": WEIGHT})


def expected(saved: Path) -> np.ndarray:
    return keras.saving.load_model(saved / "single.keras").predict(X, verbose=0)


def test_outputs_have_the_models_names_or_the_jobs(saved: Path) -> None:
    named = run(saved, "named")
    np.testing.assert_allclose(named["score"], expected(saved), atol=1e-6)
    np.testing.assert_array_equal(named["twice"], WEIGHT * 2)
    assert run(saved, "named", outputs=["twice"]).keys() == {"twice"}
    np.testing.assert_allclose(run(saved, "listed", outputs=["a", "b"])["a"], expected(saved), atol=1e-6)
    np.testing.assert_allclose(run(saved, "single", ("x",))["output"], expected(saved), atol=1e-6)


def test_columns_are_one_for_each_input(saved: Path) -> None:
    with pytest.raises(JobError, match=r"columns: expected one for each of its inputs, x \(float32\), weight"):
        run(saved, "named", ("x",))


def test_a_file_that_is_no_model_says_so_and_code_in_one_is_not_run(saved: Path) -> None:
    (saved / "torn.keras").write_bytes((saved / "named.keras").read_bytes()[:200])
    with pytest.raises(JobError, match=r"expected a model as model.save writes it"):
        run(saved, "torn")
    x = keras.Input((4,))
    keras.Model(x, keras.layers.Lambda(lambda value: value + 1)(x)).save(saved / "code.keras")
    with pytest.raises(JobError, match=r"expected a model as model.save writes it.*[Ll]ambda"):
        run(saved, "code", ("x",))


def test_a_process_has_one_backend(saved: Path) -> None:
    with pytest.raises(JobError, match="expected Keras on jax, found it on torch in this process already"):
        run(saved, "named", backend="jax")


ON_JAX = """
import sys
import numpy as np
from overnight.tasks.infer.models.keras import KerasModel

folder = sys.argv[1]
model = KerasModel(file=f"{folder}/named.keras", columns=["x", "weight"], backend="jax")
np.savez(f"{folder}/on_jax.npz", **model.load()(dict(np.load(f"{folder}/given.npz"))))
assert "jax" in sys.modules
"""


def test_jax_gives_what_torch_gives(saved: Path) -> None:
    pytest.importorskip("jax", reason="needs JAX")
    np.savez(saved / "given.npz", x=X, weight=WEIGHT)
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    subprocess.run([sys.executable, "-c", ON_JAX, str(saved)], env=environment, check=True, timeout=120)
    found = np.load(saved / "on_jax.npz")
    np.testing.assert_allclose(found["score"], expected(saved), atol=1e-6)
    np.testing.assert_array_equal(found["twice"], WEIGHT * 2)
