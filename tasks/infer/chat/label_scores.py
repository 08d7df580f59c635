"""Log probabilities: of an answer's tokens, and of each of several choices."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from overnight.tasks.errors import InvalidValues
from overnight.tasks.infer.chat.answer import Choice

MOST_TOP_LOGPROBS = 20  # the largest `top_logprobs` of OpenAI, and of vLLM without --max-logprobs


def token_details(logprobs: Any) -> dict[str, Any]:
    """Return `mean_logprob`, and `first_tokens` (token, log probability), of the `logprobs` of a chat completion."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not content or not all(map(_is_token, content)):
        return {}
    tokens: list[dict[str, Any]] = content
    details: dict[str, Any] = {"mean_logprob": sum(token["logprob"] for token in tokens) / len(tokens)}
    if isinstance(others := tokens[0].get("top_logprobs"), list):
        pairs = {token["token"]: token["logprob"] for token in [*others, tokens[0]] if _is_token(token)}
        details["first_tokens"] = list(pairs.items())
    return details


def _is_token(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("token"), str):
        return False
    number = value.get("logprob")
    return isinstance(number, int | float) and number <= 0


def refuse_ambiguous(choices: Sequence[str]) -> None:
    """Raise `ValueError` if the first token of an answer may not show which choice it is."""
    if len({choice[0] for choice in choices}) < len(choices):
        raise ValueError(
            "label_scores: an endpoint has only the probabilities of the first token. Expected choices that differ in "
            f"their first character, found {', '.join(map(repr, choices))}. Begin each with a letter of its own, as in "
            "'A good'"
        )


def of_first_tokens(choices: Sequence[str], details: Mapping[str, Any]) -> dict[str, float]:
    """Return choice -> probability among the choices. A choice that is not among the likeliest tokens has 0."""
    weights, tokens = dict.fromkeys(choices, 0.0), []
    for token, logprob in details.get("first_tokens", ()):
        tokens.append(token)
        for choice in choices:
            if token.strip() and choice.startswith(token.strip()):
                weights[choice] += math.exp(logprob)
    total = sum(weights.values())
    if not total:
        raise InvalidValues(
            f"expected top_logprobs that have the first token of a choice, found {tokens or 'none'!s:.200}: the "
            "endpoint does not support them, or the model reasons first. Leave out label_scores."
        )
    return {choice: weight / total for choice, weight in weights.items()}


def of_log_probabilities(choices: Sequence[str], logs: Sequence[float]) -> dict[str, float]:
    """Return choice -> probability among the choices, from the log probabilities of their whole texts."""
    largest = max(logs)
    weights = [math.exp(log - largest) for log in logs]
    return {choice: weight / sum(weights) for choice, weight in zip(choices, weights, strict=True)}


def mean_logprob(choice: Choice) -> float | None:
    """Return the mean log probability of a text's tokens; None for no text. Raise `InvalidValues` without one."""
    if "mean_logprob" in choice.details:
        return float(choice.details["mean_logprob"])
    if not choice.text:
        return None
    raise InvalidValues(
        "expected the log probabilities of the answer's tokens, found none: the endpoint does not return them. "
        "Leave out logprobs."
    )
