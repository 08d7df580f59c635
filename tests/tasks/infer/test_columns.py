"""The columns that a model adds, beside those that the rows have."""

import numpy as np
import pyarrow as pa

from overnight.tasks.infer.autotune.trial import Trial
from overnight.tasks.infer.columns import warnings_of_replaced
from overnight.tasks.infer.link import Link
from overnight.tasks.rows import blocks
from tests.tasks.infer.test_worker import Counting


def rows(*names: str) -> pa.Table:
    table = pa.table({"row_id": ["a"], "uri": ["a"], **{name: [1] for name in names}})
    return blocks.with_hidden(table, np.zeros(1, np.int64), np.zeros(1, np.int64))


def trial(columns: list[str], behind: pa.Table) -> Trial:
    return Trial(0.1, 0, None, pa.schema([(name, pa.int64()) for name in columns]), behind)


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
