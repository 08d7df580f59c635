"""The reasoning of a model apart from its answer: in a text with tags, and from a server that returns it apart."""

import json
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.infer.chat.answer import Answer, Thought, begins_reasoning, split_reasoning
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.storage.location import Location
from tests.contracts.endpoints.suite import batch_of
from tests.tasks.infer.chat_server import MOOD, ChatServer, completion

GOOD = json.dumps({"mood": "good"})
STRUCTURED: dict[str, Any] = {"output_schema": MOOD}


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


def outcome(answer: Answer, **settings: Any) -> tuple[dict[str, Any], str]:
    """The columns of one row, and why it failed."""
    found = OpenAI(model="small", user="{text}", **settings).outcome([answer])
    return {name: values[0].as_py() for name, values in found.columns.items()}, str(found.failed.get(0, ""))


def answer(text: str | None, reasoning: str | None = None, reason: str = "stop") -> Answer:
    return Answer(text, 1, 1, reason, reasoning)


@pytest.mark.parametrize(
    "settings",
    [{}, {"reasoning": True}, STRUCTURED | {"price_per_million_input_tokens": 1, "price_per_million_output_tokens": 2}],
)
def test_the_columns_that_are_known_before_a_run_are_those_that_it_makes(settings: dict[str, Any]) -> None:
    row, _ = outcome(answer(f"<think>why</think>{GOOD}"), **settings)
    assert list(row) == OpenAI(model="small", user="{text}", **settings).outputs_made()
    assert row["generated_text"] == (GOOD if "reasoning" in settings else f"<think>why</think>{GOOD}")
    unset = OpenAI(model="m", user="{text}").content_settings()
    assert unset == {"kind": "openai", "model": "m", "user": "{text}"}


@pytest.mark.parametrize("cut", [("<think>why, why",), (None, "why, why"), ("", "why, why")])
def test_reasoning_that_was_cut_off_is_told_from_an_answer(cut: tuple[Any, ...]) -> None:
    row, why = outcome(answer(*cut, reason="length"), reasoning=True)
    assert (row["reasoning"], row["generated_text"], row["finish_reason"], why) == ("why, why", None, "length", "")


def test_an_answer_of_reasoning_alone_fails_unless_the_job_keeps_the_reasoning() -> None:
    _, why = outcome(answer(None, "why, why", reason="length"))
    assert why.startswith("expected a text as answer, found none: finish_reason length. The model returned only its re")


@pytest.mark.parametrize("reasoning", [True, False])
@pytest.mark.parametrize("before", ["<think>a {} b</think>\n", "so\n</think>\n\n", "", "<think></think>```json\n"])
def test_json_is_read_behind_the_reasoning(before: str, reasoning: bool) -> None:
    text = f"{before}{GOOD}" + "\n```" * before.endswith("json\n")
    row, why = outcome(answer(text), reasoning=reasoning, **STRUCTURED)
    assert (row["structured_output"], why) == ({"mood": "good"}, "")
    _, why = outcome(answer("<think>so", reason="length"), reasoning=reasoning, **STRUCTURED)
    assert "found reasoning that does not end. It ends at max_new_tokens." in why


def test_json_that_has_the_tag_is_no_reasoning() -> None:
    schema = {"type": "object", "properties": {"tag": {"type": "string"}}, "required": ["tag"]}
    row, _ = outcome(answer(json.dumps({"tag": "a</think>{}"})), output_schema=schema)
    assert row["structured_output"] == {"tag": "a</think>{}"}


def test_a_kept_answer_has_its_reasoning(server: ChatServer, tmp_path: Path) -> None:
    server.faults["x"] = [completion(None, {"reasoning": "why"}, reason="length"), completion("another")]
    model = OpenAI(base_url=server.url, model="small", user="{text}", reasoning=True)
    for _ in range(2):
        found: Any = model.load_with(Location(str(tmp_path / "answers")))(batch_of(["x"]))
        assert found.columns["reasoning"].to_pylist() == ["why"]
    assert len(server.seen) == 1


def test_one_text_of_an_answer_has_its_own_details_and_the_tokens_of_all() -> None:
    answer = Answer(
        "a", 5, 9, "stop", others=[("b", "length", "hm")], details=[{"mean_logprob": -1}, {"mean_logprob": -2}]
    )
    assert answer.only(1) == Answer("b", 5, 9, "length", "hm", details=({"mean_logprob": -2},))
