"""Requests and answers of Gemini's own API."""

import json
from typing import Any

import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.gemini_content import GeminiContent
from overnight.tasks.infer.endpoint.faults import Blame, Fault
from overnight.tasks.infer.models.openai import OpenAI

DIALECT = GeminiContent("models/g")
URL = "https://generativelanguage.googleapis.com/v1beta"


def model(**settings: Any) -> OpenAI:
    return OpenAI(**{"model": "g", "user": "{text}", "base_url": URL, "dialect": "gemini", **settings})


def response(parts: list[Any], reason: str = "STOP", **usage: Any) -> bytes:
    counts = {"promptTokenCount": 7, "candidatesTokenCount": 3, "thoughtsTokenCount": 20, **usage}
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": reason}
    return json.dumps({"candidates": [candidate], "usageMetadata": counts, "modelVersion": "g-1"}).encode()


def test_a_request_has_contents_and_its_settings_apart() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Hi"},
    ]
    assert model(max_new_tokens=9, extra_body={"generationConfig": {"topK": 3}}).body(messages) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "model", "parts": [{"text": "Yes?"}]}, {"role": "user", "parts": [{"text": "Hi"}]}],
        "generationConfig": {"maxOutputTokens": 9, "temperature": 0.0, "seed": 0, "topK": 3},
    }
    assert DIALECT.path == "/models/g:generateContent"


def test_schemas_and_reasoning_are_settings() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    body = model(output_schema=schema, reasoning={"budget_tokens": 99}).body([{"role": "user", "content": "Hi"}])
    config = body["generationConfig"]
    assert (config["responseMimeType"], config["responseJsonSchema"]) == ("application/json", schema)
    assert config["thinkingConfig"] == {"thinkingBudget": 99, "includeThoughts": True}


def test_media_are_inside_the_request_and_links_are_refused() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
    ]
    [sent] = model().body([{"role": "user", "content": parts}])["contents"]
    assert sent["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": "QUJD"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "QUJD"}},
    ]
    link = [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    with pytest.raises(RowError, match="images inside the request"):
        model().body([{"role": "user", "content": link}])


def test_an_answer_has_its_text_its_reasoning_and_pays_for_both() -> None:
    answer = DIALECT.answer(response([{"text": "hm", "thought": True}, {"text": "yes"}], cachedContentTokenCount=5))
    assert (answer.text, answer.reasoning, answer.finish_reason, answer.model) == ("yes", "hm", "stop", "g-1")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.reasoning_tokens) == (7, 23, 20)
    assert answer.cached_tokens == 5
    assert DIALECT.answer(response([{"text": "a"}], "MAX_TOKENS")).finish_reason == "length"


def test_a_blocked_prompt_is_a_paid_answer_that_fails_its_row() -> None:
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7}}
    answer = DIALECT.answer(json.dumps(body).encode())
    assert (answer.problem, answer.prompt_tokens) == ("none: the prompt was blocked: SAFETY", 7)
    assert DIALECT.answer(response([], "SAFETY")).problem == "none: finish_reason content_filter"


def test_other_content_is_a_fault_that_passes() -> None:
    with pytest.raises(Fault) as raised:
        DIALECT.answer(b'{"choices": []}')
    assert raised.value.blame is Blame.SERVER


def test_the_estimate_of_tokens_counts_texts_media_and_the_answer() -> None:
    content = [{"type": "text", "text": "abcd" * 10}, {"type": "image_url", "image_url": {"url": "data:a/b;base64,QQ"}}]
    body = model(max_new_tokens=9).body([{"role": "user", "content": content}])
    assert DIALECT.most_tokens(body) == 10 + 1000 + 9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repairs": 1, "output_schema": {"type": "object"}}, "repairs: the requests of dialect: gemini do not have"),
        ({"by_row": {"model": "m"}, "by_row_models": ["a"]}, "by_row: expected no model"),
    ],
)
def test_settings_that_its_requests_do_not_have_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(**settings)


def test_answers_are_drawn_unless_the_temperature_is_0() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert not model().is_drawn(model().body(messages))
    assert model().is_drawn(model(temperature=0.5).body(messages))
