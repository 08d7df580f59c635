"""The dialect of OpenAI's chat completions, in the forms of servers and gateways.

`content` of an answer is a text, or a list of parts: texts, thoughts (Mistral's `thinking`), a refusal. Reasoning may
be in a field of its own. An answer without a usable text was paid for. So it is an `Answer` with a `problem`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from overnight.tasks.infer.chat.answer import Answer, Choice
from overnight.tasks.infer.chat.label_scores import token_details
from overnight.tasks.infer.chat.messages import Message
from overnight.tasks.infer.chat.request_fields import FAMILIES, RequestFields, put
from overnight.tasks.infer.chat.settings import ChatSettings, ReasoningSettings
from overnight.tasks.infer.endpoint.client import CHARACTERS_A_TOKEN, Body, Dialect
from overnight.tasks.infer.endpoint.faults import fault_in
from overnight.tasks.infer.endpoint.json_answers import count_in, not_an_answer, payload_of

REASONING = ("reasoning_content", "reasoning")  # fields of DeepSeek, SGLang and older vLLM, and of vLLM and gateways
CACHED_ELSEWHERE = ("cache_read_input_tokens", "prompt_cache_hit_tokens")  # in usage, of Anthropic and DeepSeek
MESSAGE_CHARACTERS = 300
EXPECTED = "a chat completion"
TOKENS_A_MEDIUM = 1000  # about that of an image of 1024 x 1024 pixels, or of a minute of speech
# not in a test request, which has one token: a budget of reasoning has to be smaller
ONLY_OF_ROWS = (
    *("n", "response_format", "logprobs", "top_logprobs", "tools", "tool_choice"),
    *("reasoning", "thinking_token_budget"),
)


class ChatDialect(Dialect[Answer], Protocol):
    """A protocol of chats. The dialects of providers' own APIs are in files of their own."""

    def body(self, model: str, messages: Sequence[Message], settings: ChatSettings) -> Body:
        """Return the JSON object of a request. Raise `RowError` for messages that the protocol does not have."""


@dataclass(frozen=True)
class ChatCompletions:
    """Requests for chat completions, and their answers with at most `texts` texts.

    With `has_tools`, a call of a tool is an answer.
    """

    texts: int = 1
    fields: RequestFields = FAMILIES["any"]
    has_tools: bool = False

    path = "/chat/completions"

    def body(self, model: str, messages: Sequence[Message], settings: ChatSettings) -> Body:
        body = {
            "model": model,
            "messages": messages,
            self.fields.limit: settings.max_new_tokens,
            "temperature": settings.temperature,
            self.fields.seed: settings.seed,
        }
        if settings.top_p < 1:
            body["top_p"] = settings.top_p
        if settings.num_return_sequences > 1:
            body["n"] = settings.num_return_sequences
        if settings.output_schema:
            schema: Body = {"name": "answer", "schema": settings.output_schema}
            if self.fields.is_strict:
                schema["strict"] = True
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if isinstance(settings.reasoning, ReasoningSettings):
            if settings.reasoning.effort is not None:
                put(body, self.fields.effort, settings.reasoning.effort)
            if settings.reasoning.budget_tokens is not None and self.fields.budget:
                put(body, self.fields.budget, settings.reasoning.budget_tokens)
        return body

    def test_body(self, body: Body) -> Body:
        short = {name: value for name, value in body.items() if name not in ONLY_OF_ROWS}
        for name in ("max_tokens", "max_completion_tokens"):
            if name in body:
                short[name] = 1
        short["messages"] = [{"role": "user", "content": "Hi"}]
        return short

    def most_tokens(self, body: Body) -> float:
        prompt_tokens = sum(tokens_of(message["content"]) for message in body["messages"])
        answer_tokens = body.get("max_tokens") or body.get("max_completion_tokens") or 0
        return prompt_tokens + int(answer_tokens) * int(body.get("n") or 1)

    def answer(self, content: bytes) -> Answer:
        """Raise `Fault` also for an error with status 200, and for a body that is not a chat completion."""
        return answer_of(content, self.texts, self.has_tools)

    def kept(self, fields: dict[str, Any]) -> Answer:
        return Answer(**fields)


@dataclass
class Content:
    """The parts of a message, by their types; `other_types` are the types of all other parts."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    other_types: list[str] = field(default_factory=list)

    def add(self, part: Any) -> None:
        """Add a part: a text, or an object with a `type`."""
        if isinstance(part, str):
            self.texts.append(_clean(part))
        elif isinstance(part, dict):
            kind = str(part.get("type", "text"))
            lists = {"thinking": self.thoughts, "reasoning": self.thoughts, "refusal": self.refusals}
            text = _text(part.get("text"))
            if kind in lists and isinstance(part.get(kind), str | list):
                text = _text(part[kind])
            if text is None:
                self.other_types.append(kind)
            else:
                lists.get(kind, self.texts).append(text)


def tokens_of(content: Any) -> float:
    """Return an estimate of the tokens of a message, which has the same number for each image and each sound."""
    parts = content if isinstance(content, list) else [content]
    tokens = 0.0
    for part in parts:
        is_medium = isinstance(part, dict) and part.get("type", "text") != "text"
        tokens += TOKENS_A_MEDIUM if is_medium else len(str(part)) / CHARACTERS_A_TOKEN
    return tokens


def answer_of(body: bytes, texts: int, has_tools: bool = False) -> Answer:
    """Return the answer in the body of a response with status 200, with at most `texts` texts.

    Raise `Fault` for an error with status 200, and for a body that is not a chat completion.
    """
    payload = payload_of(body, EXPECTED)
    if not isinstance(payload, dict) or "choices" not in payload:
        raise not_an_answer(payload, EXPECTED)
    return answer_in(payload, texts, has_tools)


def answer_in(payload: dict[str, Any], texts: int = 1, has_tools: bool = False) -> Answer:
    """Return the answer in the object of a chat completion."""
    items = []
    if isinstance(payload.get("choices"), list):
        items = [item for item in payload["choices"] if isinstance(item, dict)]
    for item in items:
        if item.get("error"):
            raise fault_in(item["error"])
    usage = payload.get("usage")
    if not isinstance(usage, dict):
        usage = {}
    tokens = count_in(usage, "prompt_tokens"), count_in(usage, "completion_tokens")
    cached = count_in(usage.get("prompt_tokens_details"), "cached_tokens")
    if cached is None:
        cached = count_in(usage, *CACHED_ELSEWHERE)
    if not items:
        return Answer(None, *tokens, None, problem="a chat completion without choices", cached_tokens=cached)
    reasoning_tokens = count_in(usage.get("completion_tokens_details"), "reasoning_tokens")
    choices = [_choice(item, has_tools, bool(reasoning_tokens)) for item in _in_order(items)[:texts]]
    details = [choice.details for choice in choices]
    first, *further = choices
    problem, others = first.problem, []
    for choice in further:
        problem = problem or choice.problem
        others.append((choice.text, choice.finish_reason, choice.reasoning))
    return Answer(
        first.text,
        *tokens,
        first.finish_reason,
        first.reasoning,
        others=others,
        problem=problem,
        reasoning_tokens=reasoning_tokens,
        details=details if any(details) else (),
        cached_tokens=cached,
        model=_text(payload.get("model")),
        system_fingerprint=_text(payload.get("system_fingerprint")),
    )


def _in_order(choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices by their `index`, or as they come if these are not different numbers."""
    indices = [choice.get("index") for choice in choices]
    if all(isinstance(index, int) for index in indices) and len(set(indices)) == len(indices):
        return sorted(choices, key=lambda choice: int(choice["index"]))
    return choices


def _choice(choice: dict[str, Any], has_tools: bool, has_reasoned: bool) -> Choice:
    finish_reason = _text(choice.get("finish_reason"))
    message = choice.get("message")
    if not isinstance(message, dict):
        return Choice(None, finish_reason, problem=f"a choice without a message: {_excerpt(choice)}")
    content = _content(message.get("content"))
    text = "".join(content.texts) if content.texts else None
    reasoning = "".join(content.thoughts)
    for name in REASONING:
        reasoning = reasoning or _text(message.get(name)) or ""
    details = token_details(choice.get("logprobs"))
    if has_tools and message.get("tool_calls"):
        details["tool_calls"] = _clean(json.dumps(message["tool_calls"]))
    elif finish_reason == "length" and not (text or "").strip() and (reasoning or has_reasoned):
        return Choice(None, finish_reason, reasoning or None)  # cut off before the answer, which is not an empty one
    elif text is None and not reasoning:
        return Choice(None, finish_reason, problem=_problem(message, content, finish_reason))
    return Choice(text, finish_reason, reasoning or None, details=details)


def _problem(message: dict[str, Any], content: Content, finish_reason: str | None) -> str:
    """Return what is in a message without a text."""
    if refusal := message.get("refusal") or "".join(content.refusals):
        return f"none: {_excerpt(refusal)}"
    if calls := message.get("tool_calls"):
        return f"a call of a tool: {_excerpt(calls)}"
    if content.other_types:
        return f"parts of type {_excerpt(', '.join(content.other_types))}"
    if message.get("content"):
        return _excerpt(message["content"])
    return f"none: finish_reason {finish_reason}"


def _content(value: Any) -> Content:
    content = Content()
    for part in value if isinstance(value, list) else [value]:
        content.add(part)
    return content


def _text(value: Any) -> str | None:
    """Return a text, or the texts of a list of parts as one; None for other values."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        return "".join(_content(value).texts)
    return None


def _excerpt(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(_clean(text).split())[:MESSAGE_CHARACTERS]


def _clean(text: str) -> str:
    """Return the text with U+FFFD in place of each half of a surrogate pair, which no column can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
