"""Prompts from the columns of a row: names in braces, and nothing else."""

import numpy as np
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import RowError
from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.text_generation import TextGeneration
from overnight.tasks.infer.prompt_templates import filled, placeholders, texts

BATCH = {
    name: np.array(values, object) for name, values in {"a": ["1", "2"], "b": ["x", "{y}"], "c": ["z", None]}.items()
}


def test_columns_in_braces_are_named_once_and_filled_row_by_row() -> None:
    assert placeholders("{b} and {a}, {b} {{c}}") == ["b", "a"]
    assert filled('{{"text": "{b}"}} {a}', BATCH) == ['{"text": "x"} 1', '{"text": "{y}"} 2']
    assert filled("no {{columns}}", BATCH) == ["no {columns}"] * 2


@pytest.mark.parametrize("template", ["{}", "{text.__class__}", "{text[0]}", "{text!r}", "{text:>9}", "{"])
def test_other_than_plain_names_in_braces_is_refused_with_its_setting(template: str) -> None:
    with pytest.raises(ValueError, match="user: expected column names in braces"):
        placeholders(template, "user")
    for wrong in ({"user": template}, {"user": "{a}", "system": template}):
        with pytest.raises(ValidationError):
            Chat(model="m", **wrong)
    with pytest.raises(ValidationError):
        TextGeneration(model="m", text_column="text", prompt=template)


def test_a_prompt_names_the_text_and_a_message_of_a_chat_is_not_empty() -> None:
    with pytest.raises(ValidationError, match=r"expected .text. in it"):
        TextGeneration(model="m", text_column="text", prompt="{other}")
    with pytest.raises(ValidationError, match="user"):
        Chat(model="m", user="")


def test_a_row_without_a_value_or_a_text_fails_with_its_column() -> None:
    with pytest.raises(RowError, match="c: expected a value for the system, found none"):
        filled("{a} {c}", BATCH, "system")
    assert texts(BATCH["a"], "a") == ["1", "2"]
    for value, found in ((None, "no value"), (3, "int 3")):
        with pytest.raises(RowError, match=f"a: expected a text, found {found}"):
            texts(["x", value], "a")
