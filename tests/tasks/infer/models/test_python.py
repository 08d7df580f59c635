"""The user's own class or function: how it is made, and what is refused before a row is read."""

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.python import PythonPredictor

Write = Callable[[str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Write]:
    """Writes a module of a name of its own into the working directory, and gives the name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"models_of_{abs(hash(request.node.name))}"

    def write(source: str) -> str:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        return name

    yield write
    sys.modules.pop(name, None)


def test_a_class_is_made_once_with_its_arguments_and_called_for_each_batch(module: Write) -> None:
    name = module("""
        class Adder:
            made = 0

            def __init__(self, amount):
                Adder.made += 1
                self.amount = amount

            def __call__(self, batch):
                return {"sum": batch["x"] + self.amount, "made": [Adder.made] * len(batch["x"])}
    """)
    predict = PythonPredictor(target=f"{name}:Adder", kwargs={"amount": 3}).load()
    assert predict({"x": np.array([1, 2])})["sum"].tolist() == [4, 5]
    assert predict({"x": np.array([7])}) == {"sum": np.array([10]), "made": [1]}


BROKEN = "class M:\n    def __init__(self, path):\n        raise FileNotFoundError(f'no weights at {path}')\n"
EXITS = "class M:\n    def __init__(self): raise SystemExit(3)"
REFUSED = [
    ("def M(batch): return batch", {"factor": 2}, "kwargs (factor) are for the __init__ of a class"),
    (BROKEN, {"path": "w.pt"}, "NAME:M: __init__ raised FileNotFoundError: no weights at w.pt (NAME.py, line 3)"),
    (BROKEN, {"path": "w.pt"}, "\n  NAME.py:3, in __init__: raise FileNotFoundError(f'no weights at {path}')"),
    (BROKEN, {"paths": "w.pt"}, "It takes (path), and kwargs gives paths."),
    (EXITS, {}, "NAME:M: __init__ raised SystemExit: 3 (NAME.py, lin"),
    ("class M: ...", {}, "expected a method __call__(self, batch)"),
    ("", {}, "expected M in NAME"),
]


@pytest.mark.parametrize(("source", "kwargs", "reason"), REFUSED)
def test_code_that_cannot_be_made_is_refused_with_its_line(
    module: Write, source: str, kwargs: dict[str, object], reason: str
) -> None:
    name = module(source)
    with pytest.raises(JobError) as caught:
        PythonPredictor(target=f"{name}:M", kwargs=kwargs).load()
    assert caught.value.stage == "infer"
    assert reason.replace("NAME", name) in str(caught.value)


def test_a_module_that_is_missing_is_named() -> None:
    with pytest.raises(JobError, match="no_such_module_anywhere"):
        PythonPredictor(target="no_such_module_anywhere:Model").load()


@pytest.mark.parametrize("target", ["models", "models:", ":Model", "my models:Model", "models.py:Model()"])
def test_a_target_that_is_not_module_and_name_is_refused_when_it_is_set(target: str) -> None:
    with pytest.raises(ValidationError, match="target"):
        PythonPredictor(target=target)


def test_the_fingerprint_changes_with_the_code(module: Write) -> None:
    name = module("class Model: ...")
    before = PythonPredictor(target=f"{name}:Model").fingerprint()
    module("class Model: depth = 2")
    after = PythonPredictor(target=f"{name}:Model").fingerprint()
    assert list(before) == list(after) == [f"{name}.py"]
    assert before != after
