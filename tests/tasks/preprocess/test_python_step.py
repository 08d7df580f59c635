"""The user's own steps: how code is made and called, and what stops a run."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.rows import apply, blocks
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

def misspells(batch):
    return {"y": batch["xx"]}

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
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_steps.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_steps", raising=False)


def block() -> pa.Table:
    return source_block(0, 0, pa.table({"row_id": list("abcd"), "x": [1, 2, 3, None], "t": list("pqrs")}))


def after(target: str, *explode: str, **kwargs: object) -> pa.Table:
    step = PythonStep(target=f"my_steps:{target}", kwargs=kwargs, explode=list(explode))
    return apply.apply(block(), "preprocess", step.build())


def test_a_class_is_made_once_and_called_with_each_batch() -> None:
    work = PythonStep(target="my_steps:Scale", kwargs={"by": 10}).build()
    for _ in range(2):
        result = apply.apply(block(), "preprocess", work)
        assert np.array_equal(result["x"].to_pylist()[:3], [10, 20, 30])
    assert sys.modules["my_steps"].MADE == 1


def test_a_function_gets_the_batch_and_kwargs() -> None:
    assert after("shout", end="?")["shouted"].to_pylist() == ["P?", "Q?", "R?", "S?"]


def test_a_row_that_lacks_the_column_of_a_key_error_names_the_columns_that_it_has() -> None:
    said = "'xx'; the columns are row_id, x, t (my_steps.py:25, in misspells)"
    assert after("misspells")["__error_message"].to_pylist() == [said] * 4


def test_the_rows_of_an_array_are_lists() -> None:
    assert blocks.live_rows(after("three_each", "letter"))[0]["letter"].to_pylist() == ["x", "y", "z"] * 4


def test_async_code_makes_rows_too_and_a_row_that_raises_costs_only_itself() -> None:
    done = after("words_of", "letter")
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert done["__error_message"][2].as_py().startswith("r is no word (my_steps.py:")
    assert blocks.live_rows(done)[0]["letter"].to_pylist() == list("ppqqss")


@pytest.mark.parametrize(
    ("target", "explode", "words"),
    [
        ("uneven", ["letter", "place"], "'letter' and 'place'"),
        ("shout", ["shouted"], "'shouted'"),
        ("shout", ["letter"], "found shouted"),
    ],
)
def test_a_wrong_return_value_stops_the_run(target: str, explode: list[str], words: str) -> None:
    with pytest.raises(ContractError) as caught:
        after(target, *explode)
    assert words in str(caught.value)
    assert caught.value.stage == "preprocess"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("Refuses", "RuntimeError: no licence"),
        ("Scale", "TypeError"),
        ("NoCall", "__call__"),
        ("NUMBER", "found int"),
        ("missing", "expected missing in my_steps"),
    ],
)
def test_a_target_that_cannot_be_made_names_itself_and_why(target: str, words: str) -> None:
    with pytest.raises(JobError) as caught:
        after(target)
    assert f"my_steps:{target}" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.stage == "preprocess"


def test_its_code_has_a_fingerprint() -> None:
    assert set(PythonStep(target="my_steps:Scale").fingerprint()) == {"my_steps.py"}
