"""Messages of rows: parts, conversations as data sets have them, and examples before them."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.messages import conversation, text_of
from overnight.tasks.infer.models.openai import OpenAI

CALL = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "17 * 23?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "391", "tool_call_id": "1"},
]


def rows_of(model: OpenAI, **columns: Any) -> list[list[dict[str, Any]]]:
    """The messages of rows, whose columns pass through Arrow as in a run."""
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    ids = pa.chunked_array([pa.array([f"r{row}" for row in range(len(table))])])
    batch = {name: model.given(name, table[name]) for name in table.column_names}
    return model.conversations({**batch, "row_id": model.given("row_id", ids)})


@pytest.mark.parametrize("form", [list, json.dumps, lambda turns: json.dumps({"messages": turns})])
def test_a_conversation_is_a_list_of_structs_or_json_and_keeps_calls_of_tools(form: Any) -> None:
    assert rows_of(OpenAI(model="m", messages="chat"), chat=[form(TURNS)]) == [TURNS]


def test_fields_that_only_other_rows_have_are_left_out() -> None:
    plain = [{"role": "user", "content": "Hi", "tool_calls": []}]
    assert rows_of(OpenAI(model="m", messages="chat"), chat=[TURNS, plain])[1] == [{"role": "user", "content": "Hi"}]


def test_the_system_message_comes_first_unless_the_conversation_has_its_own_and_examples_come_before_the_row() -> None:
    example = {"user": "{1 + 1?}", "assistant": '{"sum": 2}'}
    shown = [{"role": "user", "content": "{1 + 1?}"}, {"role": "assistant", "content": '{"sum": 2}'}]
    asked = [{"role": "user", "content": "Hi"}]
    model = OpenAI(model="m", messages="chat", system="be {mood}", examples=[example])
    rows = rows_of(model, chat=[json.dumps(TURNS), json.dumps(asked)], mood=["kind", "kind"])
    assert rows == [
        [TURNS[0], *shown, *TURNS[1:]],
        [{"role": "system", "content": "be kind"}, *shown, *asked],
    ]
    model = OpenAI(model="m", user="{text}", examples=[example])
    assert rows_of(model, text=["Hi"]) == [[*shown, *asked]]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "chat: expected a list of messages, found none"),
        ("Hi", "chat: expected messages as JSON"),
        ("[" * 100_000, "chat: expected messages as JSON"),
        ("[]", "chat: expected a list of messages, found list"),
        ("3", "chat: expected a list of messages, found int 3"),
        ([{"from": "human", "value": "Hi"}], "found the keys from, value"),
        (json.dumps({"messages": TURNS, "tools": [CALL]}), "expected messages alone, found tools beside them"),
        (["Hi"], r"chat\[0\]: expected a message with role and content, found str 'Hi'"),
        ([{"role": "user", "content": None}], r"chat\[0\]: expected a text or parts as content, found none"),
        ([{"role": "user", "content": "Hi"}, {"role": "user", "content": 3}], r"chat\[1\].*found int 3"),
    ],
)
def test_a_value_that_is_no_conversation_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(RowError, match=words):
        conversation(value, "chat")


def test_parts_are_in_the_order_of_the_job_file_and_a_row_without_one_of_them_is_refused() -> None:
    parts = [{"text": "About {product}:"}, {"image": "photo"}, {"image": "back"}, {"audio": "clip"}]
    model = OpenAI(model="m", user=parts)
    assert model.inputs() == ["product", "photo", "back", "clip", "row_id"]
    row = {"product": ["a pan"], "photo": ["https://a"], "back": ["https://b"], "clip": [b"RIFF"]}
    [[message]] = rows_of(model, **row)
    assert message["content"] == [
        {"type": "text", "text": "About a pan:"},
        {"type": "image", "image": "https://a"},
        {"type": "image", "image": "https://b"},
        {"type": "audio", "audio": b"RIFF"},
    ]
    with pytest.raises(RowError, match="back: expected a value for the image of user, found none"):
        rows_of(model, **row | {"back": pa.array([None], pa.string())})


def test_parts_of_text_are_lines_for_a_model_of_texts_and_others_are_refused() -> None:
    assert text_of([{"type": "text", "text": "a"}, {"text": "b"}]) == "a\nb"
    assert text_of("a") == "a"
    with pytest.raises(RowError, match="a part of type image_url"):
        text_of([{"type": "image_url", "image_url": {"url": "data:"}}])


def test_a_job_without_new_settings_keeps_its_fingerprint() -> None:
    model = OpenAI(model="m", user="{text}", system="be kind", reasoning=True)
    expected = {"kind": "openai", "model": "m", "user": "{text}", "system": "be kind", "reasoning": True}
    assert model.content_settings() == expected
    assert np.unique(model.inputs()).tolist() == ["row_id", "text"]
