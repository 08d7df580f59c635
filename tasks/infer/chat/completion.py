"""The answer in a chat completion, in the forms that servers and gateways give it.

`content` is a text, or a list of parts: texts, thoughts (Mistral's `thinking`), a refusal. Reasoning may be in a field
of its own. Choices are in the order of their `index`. An answer without a usable text has `problem` instead of one. It
was paid for, so it is an `Answer` and no error.
"""

import json
from collections.abc import Sequence
from typing import Any

from overnight.tasks.infer.chat.faults import Blame, Fault, fault_in, words_of_text
from overnight.tasks.infer.chat.settings import Answer

REASONING = ("reasoning_content", "reasoning")  # fields of DeepSeek, SGLang and older vLLM, and of vLLM and gateways
MESSAGE_CHARACTERS = 300
MOST_TOKENS = 2**63 - 1


def answer_of(content: bytes, texts: int) -> Answer:
    """Return the answer in the body of a response with status 200, with at most `texts` texts.

    Raise `Fault` for an error with status 200, and for a body that is not a chat completion.
    """
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError):
        shown = words_of_text(content[:2000].decode(errors="replace"))[:80]
        raise Fault(Blame.SERVER, f"expected a chat completion, found {shown!r}") from None
    if not isinstance(payload, dict) or ("choices" not in payload and not payload.get("error")):
        raise Fault(Blame.SERVER, f"expected a chat completion, found {str(payload)[:80]!r}")
    choices = payload.get("choices")
    choices = [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    error = payload.get("error") or next((choice["error"] for choice in choices if choice.get("error")), None)
    if error:
        raise fault_in(error)
    usage = payload.get("usage")
    prompt_tokens, completion_tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if not choices:
        return Answer(None, prompt_tokens, completion_tokens, None, problem="a chat completion without choices")
    parts = [_text_of(choice) for choice in _in_order(choices)[:texts]]
    problems = [problem for *_, problem in parts if problem]
    (text, reason, reasoning, _), *others = parts
    return Answer(
        text,
        prompt_tokens,
        completion_tokens,
        reason,
        reasoning,
        others=[other[:3] for other in others],
        problem=problems[0] if problems else None,
    )


def _in_order(choices: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices by their `index`, or as they come if these are not different numbers."""
    places = [choice.get("index") for choice in choices]
    if all(isinstance(place, int) for place in places) and len(set(places)) == len(places):
        return sorted(choices, key=lambda choice: int(choice["index"]))
    return list(choices)


def _text_of(choice: dict[str, Any]) -> tuple[str | None, str | None, str | None, str | None]:
    """Return the text of a choice, its finish reason, its reasoning, and why there is no text and no reasoning."""
    message, reason = choice.get("message"), _string(choice.get("finish_reason"))
    if not isinstance(message, dict):
        return None, reason, None, f"a choice without a message: {_shown(choice)}"
    content = message.get("content")
    texts, thoughts, refusals, kinds = _parts(content)
    apart = next((thought for name in REASONING if (thought := _joined(message.get(name)))), None)
    text, reasoning = "".join(texts) if texts else None, "".join(thoughts) or apart or None
    if text is not None or reasoning is not None:
        return text, reason, reasoning, None
    refusal = message.get("refusal") or "".join(refusals)
    calls = message.get("tool_calls")
    if refusal:
        problem = f"none: {_shown(refusal)}"
    elif calls:
        problem = f"a call of a tool: {_shown(calls)}"
    elif kinds:
        problem = f"parts of type {_shown(', '.join(kinds))}"
    elif content:
        problem = _shown(content)
    else:
        problem = f"none: finish_reason {reason}"
    return None, reason, None, problem


def _parts(content: Any) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the texts, the thoughts and the refusals in `content`, and the types of all other parts."""
    texts: list[str] = []
    thoughts: list[str] = []
    refusals: list[str] = []
    kinds: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(_clean(part))
        elif isinstance(part, dict):
            kind = str(part.get("type", "text"))
            into = {"thinking": thoughts, "reasoning": thoughts, "refusal": refusals}.get(kind, texts)
            found = _joined(part.get(kind)) if into is not texts else None
            found = _joined(part.get("text")) if found is None else found
            if found is None:
                kinds.append(kind)
            else:
                into.append(found)
    return texts, thoughts, refusals, kinds


def _joined(value: Any) -> str | None:
    """Return a text, or the texts of a list of parts as one; None if there is none."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        return "".join(_parts(value)[0])
    return None


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(value) if 0 <= value <= MOST_TOKENS else None  # NaN is in no range


def _string(value: Any) -> str | None:
    return _clean(value) if isinstance(value, str) else None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(_clean(text).split())[:MESSAGE_CHARACTERS]


def _clean(text: str) -> str:
    """Return the text with U+FFFD in place of each half of a surrogate pair, which no column can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
