"""The user's own steps: how code is made and called, and what stops a run."""

import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.rows import apply, blocks
from tests.contracts.steps import user_code
from tests.tasks.blocks import source_block


def block() -> pa.Table:
    return source_block(0, 0, pa.table({"row_id": list("abcd"), "x": [1, 2, 3, None], "t": list("pqrs")}))


def after(target: str, *explode: str, **kwargs: object) -> pa.Table:
    step = PythonStep(target=f"tests.contracts.steps.user_code:{target}", kwargs=kwargs, explode=list(explode))
    return apply.apply(block(), "preprocess", step.build())


def test_a_class_is_made_once_and_called_with_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code.Scale, "made", 0)
    work = PythonStep(target="tests.contracts.steps.user_code:Scale", kwargs={"by": 10}).build()
    for _ in range(2):
        assert apply.apply(block(), "preprocess", work)["x"].to_pylist()[:3] == [10, 20, 30]
    assert user_code.Scale.made == 1


def test_a_function_gets_the_batch_and_kwargs() -> None:
    assert after("shout", end="?")["shouted"].to_pylist() == ["P?", "Q?", "R?", "S?"]


def test_a_row_that_lacks_the_column_of_a_key_error_names_the_columns_that_it_has() -> None:
    for reason in after("letters", "letter")["__error_message"].to_pylist():
        assert reason.startswith("'word'; the columns are row_id, x, t (user_code.py:")


def test_the_rows_of_an_array_become_rows() -> None:
    assert blocks.live_rows(after("three_each", "letter"))[0]["letter"].to_pylist() == ["x", "y", "z"] * 4


def test_async_code_makes_rows_too_and_a_row_that_raises_costs_only_itself() -> None:
    done = after("words_of", "letter")
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert done["__error_message"][2].as_py().startswith("r is no word (user_code.py:")
    assert blocks.live_rows(done)[0]["letter"].to_pylist() == list("ppqqss")


@pytest.mark.parametrize(
    ("target", "explode", "words"),
    [
        ("uneven", ["letter", "place"], "'letter' and 'place'"),
        ("shout", ["shouted"], "'shouted'"),
        ("shout", ["letter"], "found shouted"),
    ],
)
def test_lists_that_no_rows_can_be_made_of_stop_the_run(target: str, explode: list[str], words: str) -> None:
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
        ("RETURNED", "expected a class or a function"),
        ("missing", "expected missing in "),
    ],
)
def test_a_target_that_cannot_be_made_names_itself_and_why(target: str, words: str) -> None:
    with pytest.raises(JobError) as caught:
        after(target)
    assert f"user_code:{target}" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.stage == "preprocess"
