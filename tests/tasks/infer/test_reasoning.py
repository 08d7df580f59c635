"""The reasoning of a model apart from its answer: in a text with tags, and from a server that returns it apart."""

import json
from typing import Any

import numpy as np
import pytest

from overnight.tasks.infer.chat.settings import Answer
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.reasoning import Thought, begins_reasoning, split_reasoning
from overnight.tasks.storage.location import Location
from tests.tasks.infer.chat_server import MOOD, ChatServer, completion

GOOD = json.dumps({"mood": "good"})
STRUCTURED = {"output_schema": MOOD}


@pytest.mark.parametrize(
    ("text", "is_begun", "expected"),
    [
        ("<think>\nwhy\n</think>\n\nbecause", False, Thought("why", "because")),
        ("why\n</think>\nbecause", False, Thought("why", "because")),
        ("why\n</think>\nbecause", True, Thought("why", "because")),
        ("<think>\n\n</think>\n\nbecause", False, Thought(None, "because")),
        ("<think>a</think>b<think>c</think>d", False, Thought("a", "b<think>c</think>d")),
        ("<think>why, why", False, Thought("why, why", None)),
        ("why, why", True, Thought("why, why", None)),
        ("why</think>", True, Thought("why", "")),
        (" no thought\n", False, Thought(None, " no thought\n")),
        ("", True, Thought(None, None)),
    ],
)
def test_a_text_is_split_at_the_end_of_its_reasoning(text: str, is_begun: bool, expected: Thought) -> None:
    assert split_reasoning(text, is_begun) == expected


def test_a_prompt_that_ends_with_the_tag_begins_the_reasoning() -> None:
    assert begins_reasoning("<|im_start|>assistant\n<think>\n")
    assert not begins_reasoning("<think>\n\n</think>\n\n")


def ask(server: ChatServer, answer: bytes, log: Location | None = None, **settings: Any) -> tuple[dict[str, Any], str]:
    """The columns of one row, and why it failed."""
    server.always["x"] = answer
    model = OpenAI(base_url=server.url, model="small", user="{text}", max_tries=1, **settings)
    batch = {"text": np.array(["x"], object), "row_id": np.array(["r"], object)}
    found = model.load_with(log)(batch)
    row = {name: values[0].as_py() for name, values in found.columns.items()}
    return row, str(found.failed.get(0, ""))


def test_without_the_setting_columns_and_texts_are_as_they_were(server: ChatServer) -> None:
    row, _ = ask(server, completion("<think>why</think>because"))
    assert row["generated_text"] == "<think>why</think>because"
    assert "reasoning" not in row
    assert OpenAI(model="m", user="{text}").content_settings() == {"kind": "openai", "model": "m", "user": "{text}"}


def test_the_columns_that_are_known_before_a_run_are_those_that_it_makes(server: ChatServer) -> None:
    prices = {"price_per_million_input_tokens": 1, "price_per_million_output_tokens": 2}
    for settings in ({}, {"reasoning": True}, {"reasoning": True, **STRUCTURED, **prices}):
        row, _ = ask(server, completion(GOOD), **settings)
        model = OpenAI(model="small", user="{text}", **settings)
        assert list(row) == model.outputs_made()


def test_reasoning_that_was_cut_off_is_told_from_an_answer(server: ChatServer) -> None:
    apart = [{"reasoning": "why, why"}, {"reasoning_content": "why, why"}]
    cut = completion("<think>why, why", reason="length")
    for answer in (
        cut,
        *(completion(text, more, reason="length") for text, more in zip((None, ""), apart, strict=True)),
    ):
        row, why = ask(server, answer, reasoning=True)
        assert (row["reasoning"], row["generated_text"], row["finish_reason"]) == ("why, why", None, "length")
        assert not why
    _, why = ask(server, completion(None, {"reasoning": "why, why"}, reason="length"))
    assert why.startswith("expected a text as answer, found none: finish_reason length. The model returned only its re")


@pytest.mark.parametrize("reasoning", [True, False])
def test_json_is_read_behind_the_reasoning(server: ChatServer, reasoning: bool) -> None:
    for before in ("<think>a {} b</think>\n", "so\n</think>\n\n", "", "<think></think>```json\n"):
        text = f"{before}{GOOD}" + "\n```" * before.endswith("json\n")
        row, why = ask(server, completion(text), reasoning=reasoning, **STRUCTURED)
        assert (row["structured_output"], why) == ({"mood": "good"}, "")
    _, why = ask(server, completion("<think>so", reason="length"), reasoning=reasoning, **STRUCTURED)
    assert "found reasoning that does not end. It ends at max_new_tokens." in why


def test_json_that_holds_the_tag_is_no_reasoning(server: ChatServer) -> None:
    schema = {"type": "object", "properties": {"tag": {"type": "string"}}, "required": ["tag"]}
    row, _ = ask(server, completion(json.dumps({"tag": "a</think>{}"})), output_schema=schema)
    assert row["structured_output"] == {"tag": "a</think>{}"}


def test_a_kept_answer_has_its_reasoning_and_one_of_an_earlier_version_has_none(
    server: ChatServer, tmp_path: Any
) -> None:
    log = Location(str(tmp_path / "answers"))
    first, _ = ask(server, completion(None, {"reasoning": "why"}, reason="length"), log, reasoning=True)
    again, _ = ask(server, completion("another"), log, reasoning=True)
    assert first == again
    assert len(server.seen) == 1
    assert (
        Answer(**{"text": "a", "prompt_tokens": 1, "completion_tokens": 1, "finish_reason": "stop"}).reasoning is None
    )
