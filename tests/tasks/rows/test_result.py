"""Outcomes of several calls become one; output rows keep the number of the row that they were made of."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.result import SUFFIX, Outcome, concatenated, one_each, several, stacked


def test_calls_are_joined_in_their_order_and_failed_rows_keep_their_places() -> None:
    first = Outcome({"y": [1, 2]}, failed={1: ValueError("a")})
    second = Outcome({"y": [None, 4], "z": ["c", "d"]}, failed={0: ValueError("b")})
    joined = stacked([first, second], [2, 2])
    assert {name: values.to_pylist() for name, values in joined.columns.items()} == {
        "y": [1, 2, None, 4],
        "z": [None, None, "c", "d"],
    }
    assert {row: str(error) for row, error in joined.failed.items()} == {1: "a", 2: "b"}
    assert stacked([first], [2]) is first


def test_a_column_that_only_some_calls_replace_has_the_former_values_of_the_others() -> None:
    before = pa.table({"t": ["a", "b", "c", "d"]})
    several_rows = several({"n": [1, 2, 3]}, [1, 1, 0], [0, 1, 0])
    joined = stacked([Outcome({"t": ["A", "B"]}), several_rows], [2, 2], before=before)
    assert joined.columns["t"].to_pylist() == ["A", "B", "d", "d", "c"]
    error = ValueError("no")
    numbers = stacked([Outcome({"t": [1, 2, 3]}), Outcome(failed={0: error})], [3, 1], before=before)
    assert numbers.columns["t"].to_pylist() == [1, 2, 3, None], "of another type, beside a call that failed"


def test_output_rows_have_suffixes_as_text_and_numbers_of_their_rows() -> None:
    outcome = several({"x": [1, 2, 3]}, [0, 0, 2], [0, 1, "a"], {1: ValueError("no")})
    assert outcome.columns[SUFFIX].to_pylist() == ["0", "1", "a"]
    assert (outcome.made_of.tolist(), outcome.made_of.dtype) == ([0, 0, 2], np.int64)
    assert list(outcome.failed) == [1]
    assert several({}, [], []).failed == {}


def test_one_row_of_each_keeps_its_place_and_a_failed_row_is_null() -> None:
    error = ValueError("no")
    outcome = one_each(several({"x": [10, 30]}, [0, 2], [0, 0], {1: error}), 3)
    assert {name: values.to_pylist() for name, values in outcome.columns.items()} == {"x": [10, None, 30]}
    assert (outcome.failed, outcome.made_of) == ({1: error}, None)


def test_numbers_of_two_widths_are_joined_and_types_without_a_common_one_name_their_column() -> None:
    tables = [pa.table({"a": pa.array([1], pa.int8()), "b": ["x"]}), pa.table({"a": pa.array([2], pa.int64())})]
    assert concatenated(tables, "infer").to_pydict() == {"a": [1, 2], "b": ["x", None]}
    with pytest.raises(ContractError) as refused:
        concatenated([pa.table({"a": [1], "b": ["x"]}), pa.table({"a": [1], "b": [[1]]})], "preprocess")
    assert refused.value.stage == "preprocess"
    assert "column 'b'" in str(refused.value)
    assert "column 'a'" not in str(refused.value)
