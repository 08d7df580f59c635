"""Programs and modules of PyTorch's give, row for row, what they give when they are called."""

import os
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.torch import TorchModel
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import blocks, rebatch
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

CODE = """
    import torch

    class Scorer(torch.nn.Module):
        def __init__(self, width: int = 4):
            super().__init__()
            self.linear = torch.nn.Linear(width, 2)

        def forward(self, x, weight):
            return self.linear(x), weight * 2

    class ByName(Scorer):
        def forward(self, x, weight):
            return {"scores": self.linear(x), "twice": weight * 2, "unused": weight}

    class Pixels(torch.nn.Module):
        def forward(self, image):
            return image.float().mean((1, 2, 3))

    class OfWholeBatch(torch.nn.Module):
        def forward(self, x):
            return x.mean()

    class Wide(torch.nn.Module):
        def forward(self, x):
            return x

    class NotAModule:
        pass

    def broken():
        raise ValueError("no such thing")
"""
X = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
WEIGHT = np.arange(9, dtype=np.float64)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the module of these tests."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"torch_models_{tmp_path.name}.py").write_text(textwrap.dedent(CODE))
    return tmp_path


def target(here: Path, name: str) -> str:
    return f"torch_models_{here.name}:{name}"


@pytest.fixture
def scorer(here: Path) -> Any:
    """The module, with weights that are saved in every way."""
    from overnight.tasks.config.user_code import import_target

    torch.manual_seed(0)
    module = import_target(target(here, "Scorer"), "infer")().eval()
    torch.save(module.state_dict(), "weights.pt")
    save_file(module.state_dict(), "weights.safetensors")
    some = torch.export.Dim("some", max=4096)
    given = (torch.from_numpy(X), torch.from_numpy(WEIGHT))
    torch.export.save(torch.export.export(module, given, dynamic_shapes=({0: some}, {0: some})), "scorer.pt2")
    torch.jit.trace(module, given).save("scorer.pt")
    return module


def run(x: Any = X, weight: Any = WEIGHT, **settings: Any) -> dict[str, Any]:
    known = {"columns": ["x", "weight"], **settings}
    return TorchModel(**known).load()({"x": x, "weight": weight})


def expected(scorer: Any) -> np.ndarray:
    with torch.inference_mode():
        return scorer.linear(torch.from_numpy(X)).numpy()


@pytest.mark.parametrize("program", ["scorer.pt2", "scorer.pt"])
@pytest.mark.parametrize("count", [1, 9])
def test_a_program_gives_what_its_module_gives(scorer: Any, program: str, count: int) -> None:
    found = run(X[:count], WEIGHT[:count], program=program, outputs=["scores", "twice"])
    np.testing.assert_allclose(found["scores"], expected(scorer)[:count], atol=1e-6)
    np.testing.assert_array_equal(found["twice"], WEIGHT[:count] * 2)
    assert found["scores"].dtype == np.float32


@pytest.mark.parametrize("weights", ["weights.pt", "weights.safetensors"])
def test_a_module_has_the_weights_that_are_named(here: Path, scorer: Any, weights: str) -> None:
    settings = {"module": target(here, "Scorer"), "kwargs": {"width": 4}, "weights": weights}
    found = run(**settings, outputs=["scores", "twice"])
    np.testing.assert_allclose(found["scores"], expected(scorer), atol=1e-6)


def test_a_dict_of_outputs_has_their_names(here: Path, scorer: Any) -> None:
    settings = {"module": target(here, "ByName"), "weights": "weights.pt"}
    assert run(**settings).keys() == {"scores", "twice", "unused"}
    assert run(**settings, outputs=["twice"]).keys() == {"twice"}
    with pytest.raises(ContractError, match=r"outputs: expected names among scores, twice, unused.*found nonsense"):
        run(**settings, outputs=["nonsense"])


def test_half_precision_stays_near_and_comes_out_as_float32(here: Path, scorer: Any) -> None:
    settings = {"module": target(here, "Scorer"), "weights": "weights.pt", "outputs": ["scores", "twice"]}
    found = run(weight=WEIGHT.astype(np.float32), **settings, dtype="bfloat16")
    assert found["scores"].dtype == np.float32
    np.testing.assert_allclose(found["scores"], expected(scorer), atol=0.05)
    assert not np.array_equal(found["scores"], expected(scorer))


def test_arrays_of_unlike_shapes_go_in_calls_of_their_own_and_keep_their_order(here: Path) -> None:
    draw = np.random.default_rng(0)
    sizes = [(4, 4), (2, 6), (4, 4), (8, 1), (2, 6)]
    images = np.empty(5, object)
    images[:] = [draw.integers(0, 255, (*size, 3), np.uint8) for size in sizes]
    model = TorchModel(module=target(here, "Pixels"), columns=["image"]).load()
    np.testing.assert_allclose(model({"image": images})["output"], [image.mean() for image in images], rtol=1e-5)
    wide = TorchModel(module=target(here, "Wide"), columns=["image"]).load()
    assert [found.shape for found in wide({"image": images})["output"]] == [image.shape for image in images]


def test_rows_without_numbers_are_quarantined_and_the_others_run(here: Path) -> None:
    table = pa.table({"row_id": list("abcd"), "x": pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0]])})
    model = TorchModel(module=target(here, "Wide"), columns=["x"])
    done = rebatch.joined(Worker(Link(model), make_run(here))(source_block(0, 0, table)))
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.QUARANTINED, blocks.LIVE, blocks.LIVE]
    assert "x: expected a number or an array of numbers, found no value" in done["__error_message"][1].as_py()


def test_texts_are_refused(here: Path) -> None:
    model = TorchModel(module=target(here, "Wide"), columns=["x"]).load()
    with pytest.raises(Exception, match="x: expected numbers or arrays of numbers, found <U1"):
        model({"x": np.array(["a", "b"])})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"program": "nowhere.pt2"}, "nowhere.pt2: expected a model's file, found nothing, looking from"),
        ({"program": "weights.safetensors"}, "expected a program as torch.jit.save writes it"),
        ({"program": "torn.pt2"}, "expected a program as torch.export.save writes it"),
        ({"module": "NotAModule"}, "expected a torch.nn.Module, found NotAModule"),
        ({"module": "broken"}, "raised ValueError: no such thing"),
        ({"module": "Pixels", "weights": "weights.pt"}, "(?s)not the weights of .*Pixels: .*linear"),
    ],
)
def test_what_cannot_be_loaded_says_so(here: Path, scorer: Any, settings: dict[str, str], says: str) -> None:
    (here / "torn.pt2").write_bytes((here / "scorer.pt2").read_bytes()[:500])
    if "module" in settings:
        settings = {**settings, "module": target(here, settings["module"])}
    with pytest.raises(JobError, match=says) as raised:
        run(**settings)
    assert raised.value.stage == "infer"


def test_an_output_needs_a_value_a_row_and_a_name(here: Path, scorer: Any) -> None:
    with pytest.raises(ContractError, match="output 'output': expected 9 values, one per row, found a single value"):
        TorchModel(module=target(here, "OfWholeBatch"), columns=["x"]).load()({"x": X})
    with pytest.raises(ContractError, match="outputs: expected 2 names, one for each output"):
        run(program="scorer.pt2")


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


def test_other_weights_and_other_code_are_another_fingerprint(here: Path, scorer: Any) -> None:
    model = TorchModel(module=target(here, "Scorer"), weights="weights.pt", columns=["x"])
    first = model.fingerprint()
    assert first.keys() == {f"torch_models_{here.name}.py", "weights.pt"}
    torch.save({}, "weights.pt")
    assert model.fingerprint() != first


class Attack:
    """Makes a folder where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("attacked",)


@pytest.mark.parametrize("file", ["weights.pt", "scorer.pt2"])
def test_code_that_is_pickled_into_a_models_file_is_not_run(here: Path, scorer: Any, file: str) -> None:
    torch.save(Attack(), here / "attack.pt")
    with zipfile.ZipFile(here / "scorer.pt2") as whole, zipfile.ZipFile(here / "evil.pt2", "w") as evil:
        for name in whole.namelist():
            pickled = name.endswith(".pt")
            evil.writestr(name, (here / "attack.pt").read_bytes() if pickled else whole.read(name))
    (here / "attack.pt").rename(here / "weights.pt")
    (here / "evil.pt2").rename(here / "scorer.pt2")
    module = {"module": target(here, "Scorer"), "kwargs": {"width": 4}, "weights": file}
    with pytest.raises(JobError, match=r"(?i)weights.only"):
        run(**(module if file == "weights.pt" else {"program": file}))
    assert not (here / "attacked").exists()
