"""The user's own class or function: how it is made, and what is refused before a row is read."""

import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.python import PythonPredictor

Write = Callable[[str], str]
ADDER = """
class Adder:
    made = 0

    def __init__(self, amount):
        Adder.made += 1
        self.amount = amount

    def __call__(self, batch):
        return {"sum": batch["x"] + self.amount, "made": [Adder.made] * len(batch["x"])}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module of a name of its own into the working directory, and gives the name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(source: str) -> str:
        name = f"models_{uuid.uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write


def test_a_class_is_made_once_with_its_arguments_and_called_for_each_batch(module: Write) -> None:
    predict = PythonPredictor(target=f"{module(ADDER)}:Adder", kwargs={"amount": 3}).load()
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


@pytest.mark.parametrize("target", ["models", "models:", ":Model", "my models:Model", "models.py:Model()"])
def test_a_target_that_is_not_module_and_name_is_refused_when_it_is_set(target: str) -> None:
    with pytest.raises(ValidationError, match="target"):
        PythonPredictor(target=target)
