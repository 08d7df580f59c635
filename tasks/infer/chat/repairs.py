"""Repairs: an answer that does not fit goes back to the model with the error, and the model answers once more.

The log keeps both answers by their request bodies, so a resumed run sends neither request again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests, PriceOf

REQUEST = "Your answer does not have the required form. {} Answer again, with nothing but the corrected answer."


def repaired(
    requests: ConcurrentRequests[Answer],
    row_ids: Sequence[str],
    bodies: Sequence[Body | RowError],
    answers: Sequence[Answer | Exception],
    misfit: Callable[[Answer], RowError | None],
    price_of: PriceOf,
) -> list[Answer | Exception]:
    """Return the answers. A second answer, with the tokens of both, replaces each answer that `misfit` refuses."""
    errors, second_bodies = {}, []
    for row, (body, answer) in enumerate(zip(bodies, answers, strict=True)):
        if isinstance(body, dict) and isinstance(answer, Answer) and (error := misfit(answer)):
            errors[row] = error
            second_bodies.append(_second_body(body, answer, error))
    if not errors:
        return list(answers)
    second_answers = requests.answers([row_ids[row] for row in errors], second_bodies)
    merged = list(answers)
    for (row, error), second in zip(errors.items(), second_answers, strict=True):
        first = answers[row]
        assert isinstance(first, Answer)
        if isinstance(second, Answer):
            merged[row] = with_tokens_of(second, first, price_of)
        else:
            merged[row] = RowError(f"{error}{first.usage} Its repair failed: {second}")
    return merged


def _second_body(body: Body, answer: Answer, error: RowError) -> Body:
    messages = [
        *body["messages"],
        {"role": "assistant", "content": answer.choices[0].parts().answer or answer.text},
        {"role": "user", "content": REQUEST.format(error)},
    ]
    return {**body, "messages": messages}


def with_tokens_of(second: Answer, first: Answer, price_of: PriceOf) -> Answer:
    """Return the second answer with the tokens of both. Its `price` gives the cost of both: only one may be cheaper."""
    costs = []
    for answer in (first, second):
        tokens = answer.prompt_tokens or 0, answer.completion_tokens or 0, answer.cached_tokens or 0
        costs.append(price_of(*tokens).cost)
    return replace(
        second,
        prompt_tokens=_sum(first.prompt_tokens, second.prompt_tokens),
        completion_tokens=_sum(first.completion_tokens, second.completion_tokens),
        reasoning_tokens=_sum(first.reasoning_tokens, second.reasoning_tokens),
        cached_tokens=(first.cached_tokens or 0) + (second.cached_tokens or 0),
        price=first.price + (second.price - first.price) * costs[1] / (sum(costs) or 1),
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second
