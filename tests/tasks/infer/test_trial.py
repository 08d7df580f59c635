"""The columns that rows have after all models, and the checks of those that a model reads and adds."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.models.text_classification import TextClassification
from overnight.tasks.infer.trial import Trial, columns_made, require_inputs, warnings_of_replaced
from overnight.tasks.rows import blocks
from tests.tasks.infer.test_worker import Counting


def rows(*names: str, **columns: Any) -> pa.Table:
    table = pa.table({"row_id": ["a"], "uri": ["a"], **{name: [1] for name in names}, **columns})
    return blocks.with_hidden(table, np.zeros(1, np.int64), np.zeros(1, np.int64))


def trial(columns: list[str], behind: pa.Table) -> Trial:
    return Trial(0.1, 0, pa.schema([(name, pa.int64()) for name in columns]), behind)


def test_a_model_that_replaces_a_column_of_the_source_or_of_another_model_is_named() -> None:
    a, b = (Link(Counting(name=name), prefix=f"{name}_") for name in ("a", "a_b"))
    trials = [trial(["b_c", "x"], rows("text", "a_x", "a_b_c")), trial(["c", "text"], rows())]
    found = list(warnings_of_replaced(rows("text", "a_x"), [a, b], trials))
    assert [line.split("which")[0] for line in found] == [
        "inference a: the model replaces the column 'a_x', ",
        "inference a_b: the model replaces the column 'a_b_c', ",
    ]


def test_models_that_add_other_columns_or_passed_no_row_give_no_warning() -> None:
    links = [Link(Counting())] * 2
    assert list(warnings_of_replaced(rows("text"), links, [trial(["label"], rows("text", "label")), None])) == []


@pytest.mark.parametrize(
    ("keep", "bytes_stay", "names"),
    [([], False, ["text"]), (["photo"], False, ["text", "photo"]), ([], True, ["text", "photo"])],
)
def test_without_models_rows_keep_all_columns_but_the_heavy_ones(
    keep: list[str], bytes_stay: bool, names: list[str]
) -> None:
    made = columns_made(rows("text", photo=[b"x"]), [], keep, bytes_stay)
    assert made is not None
    assert made.names == ["row_id", "uri", *names]
    assert made.field("text").type == pa.int64()


def test_with_models_rows_have_the_columns_behind_the_last_trial_if_a_row_passed_each() -> None:
    first, last = trial(["a"], rows("text", "a")), trial(["b"], rows("text", "a", "b"))
    made = columns_made(rows("text"), [first, last], [])
    assert made is not None
    assert made.names == ["row_id", "uri", "text", "a", "b"]
    for sample, trials in (
        (rows("text")[:0], []),
        (rows("text"), [None, last]),
        (rows("text"), [first, trial(["b"], rows("b")[:0])]),
    ):
        assert columns_made(sample, trials, []) is None


def test_a_column_that_a_model_reads_has_to_be_there_and_bytes_are_no_prompt() -> None:
    reading = Link(TextClassification(model="m", text_column="texts", name="mine"))
    require_inputs(reading, rows("texts"))
    with pytest.raises(ContractError, match=r"inference mine: expected column 'texts', .* mean text\?") as raised:
        require_inputs(reading, rows("text"))
    assert raised.value.stage == "infer"
    with pytest.raises(ContractError, match=r"inference openai: photo: .* bytes"):
        require_inputs(Link(OpenAI(model="m", user="{photo}")), rows(photo=[b"x"]))
