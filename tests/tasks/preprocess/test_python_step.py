"""The user's own steps, in the shapes that Ray Data documents."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.rows import apply as row_work
from overnight.tasks.rows import blocks
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

def misspells(batch):
    return {"y": batch["xx"]}

def too_few(batch):
    return {"y": batch["x"][:-1]}

def a_list(batch):
    return [1]

def letters(batch):
    many = [list(t * n) for t, n in zip(batch["t"], [1, 0, 2, 3])]
    return {"letter": many, "place": [np.arange(len(m)) for m in many], "first": batch["t"]}

def three_each(batch):
    return {"letter": np.array([["x", "y", "z"]] * len(batch["t"]))}

def uneven(batch):
    return {"letter": [["a"]] * len(batch["t"]), "place": [[0, 1]] * len(batch["t"])}

async def words_of(batch):
    return [words(t) for t in batch["t"]]

async def words(t):
    if t == "r":
        raise ValueError("r is no word")
    return {"letter": (t for _ in range(2))}

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
    return row_work.apply(block(), "preprocess", PythonStep(target=f"my_steps:{target}", kwargs=kwargs).build())


def test_a_class_is_made_once_and_called_with_each_batch():
    work = PythonStep(target="my_steps:Scale", kwargs={"by": 10}).build()
    for _ in range(2):
        result = row_work.apply(block(), "preprocess", work)
        assert np.array_equal(result["x"].to_pylist()[:3], [10, 20, 30])
    import my_steps

    assert my_steps.MADE == 1


def test_a_function_gets_the_batch_and_kwargs_and_other_columns_stay():
    result = apply("shout", end="?")
    assert result["shouted"].to_pylist() == ["P?", "Q?", "R?", "S?"]
    assert result["x"].type == pa.int64()


def test_a_row_that_raises_costs_only_itself():
    result = apply("fails_on_three")
    assert result["__state"].to_pylist() == [blocks.LIVE, blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert result["__error_type"][2].as_py() == "ValueError"
    assert result["__error_message"][2].as_py() == "three is no number (my_steps.py:26, in fails_on_three)"


def test_a_row_that_lacks_the_column_of_a_key_error_names_the_columns_that_it_has():
    result = apply("misspells")
    assert result["__error_type"].to_pylist() == ["KeyError"] * 4
    said = "'xx'; the columns are row_id, x, t (my_steps.py:30, in misspells)"
    assert result["__error_message"].to_pylist() == [said] * 4


def exploded(target: str, *explode: str) -> pa.Table:
    step = PythonStep(target=f"my_steps:{target}", explode=list(explode))
    return row_work.apply(block(), "preprocess", step.build())


def test_a_step_makes_a_row_of_each_entry_of_the_lists_that_it_returns():
    done = exploded("letters", "letter", "place")
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.FILTERED, blocks.LIVE, blocks.LIVE]
    names = ["a#0", "c#0", "c#1", "d#0", "d#1", "d#2"]
    assert blocks.live_rows(done)[0].to_pylist() == [
        {"row_id": name, "x": x, "t": t, "letter": t, "place": int(name[-1]), "first": t}
        for name, x, t in zip(names, [1, 3, 3, None, None, None], "prrsss", strict=True)
    ]
    assert blocks.live_rows(exploded("three_each", "letter"))[0]["letter"].to_pylist() == ["x", "y", "z"] * 4


def test_async_code_makes_rows_too_and_a_row_that_raises_costs_only_itself():
    done = exploded("words_of", "letter")
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert done["__error_message"][2].as_py().startswith("r is no word (my_steps.py:")
    assert blocks.live_rows(done)[0]["letter"].to_pylist() == list("ppqqss")


@pytest.mark.parametrize(
    ("target", "explode", "message"),
    [
        ("uneven", ["letter", "place"], "lists of different lengths in a row: 'letter' and 'place'"),
        ("shout", ["shouted"], "expected a list for each row in column 'shouted' of explode, found str"),
        ("shout", ["letter"], "expected column 'letter' of explode, found shouted"),
    ],
)
def test_lists_that_no_rows_can_be_made_of_stop_the_run(target, explode, message):
    with pytest.raises(ContractError, match=message):
        exploded(target, *explode)


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
