"""Requests and answers of Anthropic's Messages API."""

import json
from typing import Any

import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.anthropic_messages import AnthropicMessages
from overnight.tasks.infer.endpoint.faults import Blame, Fault
from overnight.tasks.infer.models.openai import OpenAI

DIALECT = AnthropicMessages()
URL = "https://api.anthropic.com/v1"
USAGE = {"input_tokens": 7, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 3, "output_tokens": 5}


def model(**settings: Any) -> OpenAI:
    return OpenAI(**{"model": "m", "user": "{text}", "base_url": URL, "dialect": "anthropic", **settings})


def message(content: Any, reason: str = "end_turn", **usage: Any) -> bytes:
    answer = {"type": "message", "model": "m-1", "content": content, "stop_reason": reason, "usage": {**USAGE, **usage}}
    return json.dumps(answer).encode()


def test_a_request_has_the_system_apart_and_no_temperature() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert model(max_new_tokens=9).body(messages) == {
        "model": "m",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Hi"}],
    }


def test_schemas_and_reasoning_are_fields_of_their_own() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    reasoning = {"effort": "low", "budget_tokens": 2000}
    body = model(output_schema=schema, reasoning=reasoning).body([{"role": "user", "content": "Hi"}])
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2000}


def test_images_have_a_source_and_sounds_are_refused() -> None:
    parts = [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    [sent] = model().body([{"role": "user", "content": parts}])["messages"]
    assert sent["content"][1:] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ]
    sound = [{"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}}]
    with pytest.raises(RowError, match="found a sound"):
        model().body([{"role": "user", "content": sound}])
    with pytest.raises(RowError, match="found a message of tool"):
        model().body([{"role": "tool", "content": "3"}])


def test_an_answer_has_its_text_its_reasoning_and_all_tokens_of_its_prompt() -> None:
    content = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "yes"}]
    answer = DIALECT.answer(message(content, output_tokens_details={"thinking_tokens": 2}))
    assert (answer.text, answer.reasoning, answer.finish_reason, answer.model) == ("yes", "hm", "stop", "m-1")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (100, 5, 90)
    assert answer.reasoning_tokens == 2


@pytest.mark.parametrize(
    ("reason", "word"),
    [("max_tokens", "length"), ("stop_sequence", "stop"), ("model_context_window_exceeded", "length")],
)
def test_the_reasons_of_an_end_are_those_of_chat_completions(reason: str, word: str) -> None:
    assert DIALECT.answer(message([{"type": "text", "text": "a"}], reason)).finish_reason == word


def test_a_refusal_without_a_text_is_a_paid_answer_that_fails_its_row() -> None:
    answer = DIALECT.answer(message([], "refusal"))
    assert (answer.problem, answer.prompt_tokens) == ("none: finish_reason content_filter", 100)


def test_other_content_is_a_fault_that_passes() -> None:
    with pytest.raises(Fault) as raised:
        DIALECT.answer(b'{"choices": []}')
    assert raised.value.blame is Blame.SERVER


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.5}, "temperature: the requests of dialect: anthropic do not have this"),
        ({"logprobs": True}, "logprobs: the requests of dialect: anthropic do not have this"),
        ({"by_row": {"temperature": "t"}}, "by_row: expected no temperature and seed"),
        ({"user": [{"audio": "clip"}]}, "user: expected texts and images, found audio"),
        ({"batch": {}}, "batch: expected the same dialect as that of the requests, found openai beside anthropic"),
    ],
)
def test_settings_that_its_requests_do_not_have_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(**settings)


def test_the_address_is_not_guessed() -> None:
    with pytest.raises(ValueError, match=f"base_url: expected that of the provider. Set base_url: {URL}"):
        OpenAI(model="m", user="{text}", dialect="anthropic")


def test_the_key_and_the_version_are_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "key")
    keys, headers = model(api_key_env="CLAUDE_KEY").access()
    assert (keys, headers) == ({URL: "key"}, {"anthropic-version": "2026-10-21"})
    assert model().key_header() == "x-api-key"
