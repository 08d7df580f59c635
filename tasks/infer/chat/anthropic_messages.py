"""The dialect of Anthropic's Messages API, whose answers are read as chat completions in another form.

The system's messages are apart, and images have a `source`. This version of the API refuses a temperature.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.chat_completions import answer_in, tokens_of
from overnight.tasks.infer.chat.messages import Message, split_system
from overnight.tasks.infer.chat.request_fields import FAMILIES, put
from overnight.tasks.infer.chat.settings import ChatSettings, ReasoningSettings
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.json_answers import count_in, not_an_answer, payload_of

VERSION = {"anthropic-version": "2026-10-21"}  # a header of each request
EXPECTED = "a message of Anthropic's API"
FINISH_REASONS = {
    **dict.fromkeys(("end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length"),
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
DATA_URL = re.compile(r"data:([\w/+.-]+);base64,")


@dataclass(frozen=True)
class AnthropicMessages:
    """Requests for messages, and their answers."""

    path = "/messages"

    def body(self, model: str, messages: Sequence[Message], settings: ChatSettings) -> Body:
        system, dialogue = split_system(messages)
        turns = [{"role": message["role"], "content": _content(message["content"])} for message in dialogue]
        body: Body = {"model": model, "max_tokens": settings.max_new_tokens, "messages": turns}
        if system:
            body["system"] = system
        if settings.output_schema:
            body["output_config"] = {"format": {"type": "json_schema", "schema": settings.output_schema}}
        if isinstance(settings.reasoning, ReasoningSettings):
            if settings.reasoning.effort is not None:
                put(body, FAMILIES["anthropic"].effort, settings.reasoning.effort)
            if settings.reasoning.budget_tokens is not None:
                body["thinking"] = {"type": "enabled", "budget_tokens": settings.reasoning.budget_tokens}
        return body

    def test_body(self, body: Body) -> Body:
        return {"model": body["model"], "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}

    def most_tokens(self, body: Body) -> float:
        prompt = tokens_of(body.get("system", ""))
        prompt += sum(tokens_of(message["content"]) for message in body["messages"])
        return prompt + int(body.get("max_tokens") or 0)

    def answer(self, content: bytes) -> Answer:
        """Raise `Fault` for an error with status 200, and for a body that is not a message."""
        payload = payload_of(content, EXPECTED)
        if not isinstance(payload, dict) or payload.get("type") != "message":
            raise not_an_answer(payload, EXPECTED)
        reason = str(payload.get("stop_reason"))
        message = {"content": payload.get("content")}
        choice = {"message": message, "finish_reason": FINISH_REASONS.get(reason, reason)}
        return answer_in({"model": payload.get("model"), "choices": [choice], "usage": _usage(payload.get("usage"))})

    def kept(self, fields: dict[str, Any]) -> Answer:
        return Answer(**fields)


def _content(content: Any) -> Any:
    return list(map(_part, content)) if isinstance(content, list) else content


def _part(part: Any) -> Any:
    """Return an image in Anthropic's form; other parts stay as they are, apart from sounds, which it refuses."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "input_audio":
        raise RowError("messages: expected texts and images, found a sound: Anthropic's messages have none.")
    if kind != "image_url":
        return part
    url = part["image_url"]["url"]
    if match := DATA_URL.match(url):
        source = {"type": "base64", "media_type": match[1], "data": url[match.end() :]}
    else:
        source = {"type": "url", "url": url}
    return {"type": "image", "source": source}


def _usage(usage: Any) -> dict[str, Any]:
    """Return the counts of chat completions: their prompt includes what the cache has."""
    cache_tokens = count_in(usage, "cache_read_input_tokens")
    prompt = count_in(usage, "input_tokens")
    if prompt is not None:
        prompt += (cache_tokens or 0) + (count_in(usage, "cache_creation_input_tokens") or 0)
    thoughts = count_in(usage.get("output_tokens_details"), "thinking_tokens") if isinstance(usage, dict) else None
    return {
        "prompt_tokens": prompt,
        "completion_tokens": count_in(usage, "output_tokens"),
        "prompt_tokens_details": {"cached_tokens": cache_tokens},
        "completion_tokens_details": {"reasoning_tokens": thoughts},
    }
