"""The dialect of Gemini's own API, whose answers are read as chat completions in another form.

The model's name is in the path, `contents` have parts, and the settings are in `generationConfig`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.anthropic_messages import DATA_URL
from overnight.tasks.infer.chat.chat_completions import TOKENS_A_MEDIUM, answer_in, tokens_of
from overnight.tasks.infer.chat.messages import Message, split_system
from overnight.tasks.infer.chat.request_fields import FAMILIES, put
from overnight.tasks.infer.chat.settings import ChatSettings, ReasoningSettings
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.json_answers import count_in, not_an_answer, payload_of

EXPECTED = "a response of Gemini's API"
CONFIG = "generationConfig"
FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), "content_filter"),
}


def model_path(model: str) -> str:
    """Return the path of a model, whose name may have it already."""
    return f"/models/{model.removeprefix('models/')}"


@dataclass(frozen=True)
class GeminiContent:
    """Requests for content of one model, and their answers."""

    model: str

    @property
    def path(self) -> str:
        return f"{model_path(self.model)}:generateContent"

    def body(self, model: str, messages: Sequence[Message], settings: ChatSettings) -> Body:
        system, dialogue = split_system(messages)
        body: Body = {"contents": list(map(_sent, dialogue)), CONFIG: _config(settings)}
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        return body

    def test_body(self, body: Body) -> Body:
        return {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], CONFIG: {"maxOutputTokens": 1}}

    def most_tokens(self, body: Body) -> float:
        tokens = float(body.get(CONFIG, {}).get("maxOutputTokens") or 0)
        for content in (*body["contents"], body.get("systemInstruction", {"parts": []})):
            for part in content["parts"]:
                tokens += tokens_of(part["text"]) if "text" in part else TOKENS_A_MEDIUM
        return tokens

    def answer(self, content: bytes) -> Answer:
        """Raise `Fault` for an error with status 200, and for a body that is not a response."""
        payload = payload_of(content, EXPECTED)
        if not isinstance(payload, dict) or not {"candidates", "promptFeedback"} & {*payload}:
            raise not_an_answer(payload, EXPECTED)
        choices = [_choice(candidate) for candidate in payload.get("candidates") or ()]
        if not choices:
            reason = (payload.get("promptFeedback") or {}).get("blockReason")
            refusal = {"refusal": f"the prompt was blocked: {reason}"}
            choices = [{"message": refusal, "finish_reason": "content_filter"}]
        usage = _usage(payload.get("usageMetadata"))
        return answer_in({"model": payload.get("modelVersion"), "choices": choices, "usage": usage})

    def kept(self, fields: dict[str, Any]) -> Answer:
        return Answer(**fields)


def _config(settings: ChatSettings) -> Body:
    fields = FAMILIES["gemini"]
    config: Body = {fields.limit: settings.max_new_tokens, "temperature": settings.temperature}
    config[fields.seed] = settings.seed
    if settings.top_p < 1:
        config["topP"] = settings.top_p
    if settings.output_schema:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": settings.output_schema}
    if isinstance(settings.reasoning, ReasoningSettings):
        if settings.reasoning.effort is not None:
            put(config, fields.effort, settings.reasoning.effort)
        if settings.reasoning.budget_tokens is not None and fields.budget:
            put(config, fields.budget, settings.reasoning.budget_tokens)
    if settings.reasoning:
        put(config, "thinkingConfig.includeThoughts", True)
    return config


def _sent(message: Message) -> Body:
    content = message["content"]
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return {"role": "model" if message["role"] == "assistant" else "user", "parts": list(map(_part, parts))}


def _part(part: Any) -> Body:
    kind = part.get("type", "text") if isinstance(part, dict) else None
    if kind == "text":
        return {"text": part["text"]}
    if kind == "input_audio":
        sound = part["input_audio"]
        return {"inlineData": {"mimeType": f"audio/{sound['format']}", "data": sound["data"]}}
    if kind == "image_url" and (match := DATA_URL.match(part["image_url"]["url"])):
        return {"inlineData": {"mimeType": match[1], "data": part["image_url"]["url"][match.end() :]}}
    raise RowError(
        f"messages: expected texts, sounds, and images inside the request, found a part of type {kind}, which this "
        "dialect does not send. Decode images, and leave image_as out."
    )


def _choice(candidate: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for part in (candidate.get("content") or {}).get("parts") or ():
        if "text" not in part:
            content.append({"type": next(iter(part), "nothing")})
        elif part.get("thought"):
            content.append({"type": "thinking", "thinking": part["text"]})
        else:
            content.append({"type": "text", "text": part["text"]})
    reason = str(candidate.get("finishReason"))
    return {"message": {"content": content}, "finish_reason": FINISH_REASONS.get(reason, reason.lower())}


def _usage(usage: Any) -> dict[str, Any]:
    """Return the counts of chat completions: their answers include the reasoning."""
    prompt, thoughts = count_in(usage, "promptTokenCount"), count_in(usage, "thoughtsTokenCount")
    answer = count_in(usage, "candidatesTokenCount")
    if prompt is not None:
        answer = (answer or 0) + (thoughts or 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "prompt_tokens_details": {"cached_tokens": count_in(usage, "cachedContentTokenCount")},
        "completion_tokens_details": {"reasoning_tokens": thoughts},
    }
