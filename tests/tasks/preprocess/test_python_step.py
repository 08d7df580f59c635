"""The user's own steps, in the shapes that Ray Data documents."""

import numpy as np
import pyarrow as pa
import pytest

from tasks import rows
from tasks.errors import ContractError, JobError
from tasks.preprocess.python import PythonStep
from tests.tasks.blocks import source_block

MODULE = """
import numpy as np

MADE = 0

class Scale:
    def __init__(self, by):
        global MADE
        MADE += 1
        self.by = by

    def __call__(self, batch):
        batch["x"] = batch["x"] * self.by
        return batch

class NoCall: pass

class Refuses:
    def __init__(self): raise RuntimeError("no licence")

def shout(batch, end="!"):
    return {"shouted": [t.upper() + end for t in batch["t"]]}

def fails_on_three(batch):
    if (batch["x"] == 3).any():
        raise ValueError("three is no number")
    return {"y": batch["x"]}

def too_few(batch):
    return {"y": batch["x"][:-1]}

def a_list(batch):
    return [1]

NUMBER = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    (tmp_path / "my_steps.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "my_steps", raising=False)


def block() -> pa.Table:
    return source_block(0, 0, pa.table({"row_id": list("abcd"), "x": [1, 2, 3, None], "t": list("pqrs")}))


def apply(target: str, **kwargs) -> pa.Table:
    return rows.apply(block(), "preprocess", PythonStep(target=f"my_steps:{target}", kwargs=kwargs).build())


def test_a_class_is_made_once_and_called_with_each_batch():
    work = PythonStep(target="my_steps:Scale", kwargs={"by": 10}).build()
    for _ in range(2):
        result = rows.apply(block(), "preprocess", work)
        assert np.array_equal(result["x"].to_pylist()[:3], [10, 20, 30])
    import my_steps

    assert my_steps.MADE == 1


def test_a_function_gets_the_batch_and_kwargs_and_other_columns_stay():
    result = apply("shout", end="?")
    assert result["shouted"].to_pylist() == ["P?", "Q?", "R?", "S?"]
    assert result["x"].type == pa.int64()


def test_a_row_that_raises_costs_only_itself():
    result = apply("fails_on_three")
    assert result["__state"].to_pylist() == [rows.LIVE, rows.LIVE, rows.QUARANTINED, rows.LIVE]
    assert result["__error_type"][2].as_py() == "ValueError"
    assert result["__error_message"][2].as_py() == "three is no number"


@pytest.mark.parametrize(("target", "message"), [("too_few", "3 values for a batch of 4"), ("a_list", "found list")])
def test_a_wrong_return_value_stops_the_run(target, message):
    with pytest.raises(ContractError, match=message) as caught:
        apply(target)
    assert caught.value.stage == "preprocess"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("Refuses", "__init__ raised RuntimeError: no licence"),
        ("Scale", "__init__ raised TypeError: .*'by'"),
        ("NoCall", "expected a method __call__"),
        ("NUMBER", "expected a class or a function, found int"),
        ("missing", "expected missing in my_steps"),
    ],
)
def test_a_target_that_cannot_be_made_names_itself_and_why(target, message):
    with pytest.raises(JobError, match=f"my_steps:{target}: {message}") as caught:
        apply(target)
    assert caught.value.stage == "preprocess"


def test_its_code_has_a_fingerprint():
    assert set(PythonStep(target="my_steps:Scale").fingerprint()) == {"my_steps.py"}
