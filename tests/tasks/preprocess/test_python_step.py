"""The user's own steps: how code is made and called, and what stops a run."""

import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.rows import apply, blocks
from tests.contracts.steps import user_code
from tests.contracts.steps.adapter import applied, named
from tests.tasks.blocks import source_block

ROWS = named(pa.table({"x": [1, 2, 3, None], "t": list("pqrs")}))


def step(target: str, *explode: str, **kwargs: object) -> PythonStep:
    return PythonStep(target=f"tests.contracts.steps.user_code:{target}", kwargs=kwargs, explode=list(explode))


def test_a_class_is_made_once_and_called_with_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code.Scale, "made", 0)
    work = step("Scale", by=10).build()
    for _ in range(2):
        assert apply.apply(source_block(0, 0, ROWS), "preprocess", work)["x"].to_pylist()[:3] == [10, 20, 30]
    assert user_code.Scale.made == 1


def test_a_function_gets_the_batch_and_kwargs() -> None:
    assert applied(step("shout", end="?"), ROWS)["shouted"].to_pylist() == ["P?", "Q?", "R?", "S?"]


def test_a_row_that_lacks_the_column_of_a_key_error_names_the_columns_that_it_has() -> None:
    for reason in applied(step("letters", "letter"), ROWS)["__error_message"].to_pylist():
        assert reason.startswith("'word'; the columns are row_id, x, t (user_code.py:")


def test_async_code_makes_rows_too_and_a_row_that_raises_costs_only_itself() -> None:
    done = applied(step("words_of", "letter"), ROWS)
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert done["__error_message"][2].as_py().startswith("r is no word (user_code.py:")
    assert blocks.live_rows(done)[0]["letter"].to_pylist() == list("ppqqss")


def test_a_column_that_explode_names_twice_makes_the_same_rows() -> None:
    rows, _ = blocks.live_rows(applied(step("words_of", "letter", "letter"), ROWS))
    assert rows["letter"].to_pylist() == list("ppqqss")


@pytest.mark.parametrize(
    ("target", "explode", "error", "words"),
    [
        ("uneven", ["letter", "place"], ContractError, "'letter' and 'place'"),
        ("shout", ["shouted"], ContractError, "'shouted'"),
        ("shout", ["letter"], ContractError, "found shouted"),
        ("Refuses", [], JobError, "user_code:Refuses.*RuntimeError: no licence"),
        ("Scale", [], JobError, "user_code:Scale.*TypeError"),
        ("NoCall", [], JobError, "user_code:NoCall.*__call__"),
    ],
)
def test_code_that_cannot_be_made_or_makes_no_rows_stops_the_run(
    target: str, explode: list[str], error: type[JobError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        applied(step(target, *explode), ROWS)
    assert caught.value.stage == "preprocess"
