"""Settings of rows: the checks of the job file's settings hold for the values of columns."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.row_settings import ByRow, values_of_row
from overnight.tasks.infer.models.openai import OpenAI


def value_of(setting: str, value: Any) -> dict[str, Any]:
    return values_of_row(ByRow(**{setting: "column"}), ["a", "b"], {"column": value}, OpenAI)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("temperature", np.float32(0.5), 0.5),
        ("temperature", 1, 1.0),
        ("max_new_tokens", 7.0, 7),  # a column of whole numbers with nulls
        ("max_new_tokens", np.int64(7), 7),
        ("seed", -3, -3),
        ("top_p", "0.5", 0.5),
        ("model", "b", "b"),
    ],
)
def test_a_value_has_the_type_of_the_setting(setting: str, value: Any, expected: Any) -> None:
    assert value_of(setting, value) == {setting: expected}


@pytest.mark.parametrize("value", [None, float("nan"), np.float64("nan")])
def test_a_row_without_a_value_has_no_setting_of_its_own(value: Any) -> None:
    assert value_of("temperature", value) == {}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("inf")),
        ("temperature", "hot"),
        ("top_p", 1.5),
        ("max_new_tokens", 0),
        ("max_new_tokens", 7.5),
        ("model", "c"),
        ("model", 3),
    ],
)
def test_a_value_that_the_job_file_could_not_have_is_refused_with_its_column(setting: str, value: Any) -> None:
    with pytest.raises(RowError, match="column: expected"):
        value_of(setting, value)


def test_a_whole_number_beside_null_keeps_all_of_its_digits() -> None:
    model = OpenAI(model="small", user="{text}", by_row={"seed": "column"})
    values = model.given("column", pa.chunked_array([[2**60 + 1, None]]))
    assert values.tolist() == [2**60 + 1, None]
    texts = OpenAI(model="small", user="{column}", by_row={"seed": "column"}).given("column", pa.chunked_array([[7]]))
    assert texts.tolist() == ["7"]


@pytest.mark.parametrize(
    ("setting", "field", "dialect"),
    [("max_new_tokens", "max_tokens", "any"), ("max_new_tokens", "max_completion_tokens", "openai"),
     ("seed", "random_seed", "mistral"), ("top_p", "top_p", "any")],
)  # fmt: skip
def test_a_field_that_the_rows_set_is_not_set_for_all_of_them(setting: str, field: str, dialect: str) -> None:
    with pytest.raises(ValueError, match=f"by_row already sets {field}"):
        OpenAI(model="m", user="{a}", by_row={setting: "column"}, extra_body={field: 5}, dialect=dialect)
