"""The tokens and the price of an answer that repairs another one."""

import pytest

from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.repairs import with_tokens_of
from overnight.tasks.infer.models.openai import OpenAI

PRICES = {
    "price_per_million_input_tokens": 1e6,
    "price_per_million_output_tokens": 2e6,
    "price_per_million_cached_tokens": 0.0,
}


def test_the_cost_of_both_answers_has_the_price_and_the_cached_tokens_of_each() -> None:
    model = OpenAI(model="small", user="{text}", **PRICES)
    first, second = Answer("a", 10, 1, "stop", price=0.5), Answer("b", 20, 3, "stop", cached_tokens=16)
    both = with_tokens_of(second, first, model.price_of)
    assert (both.text, both.prompt_tokens, both.completion_tokens) == ("b", 30, 4)
    costs = [model.outcome([answer]).columns["cost"][0].as_py() for answer in (first, second, both)]
    assert costs == [6, 10, pytest.approx(16)]


def test_an_answer_without_a_price_has_that_of_all_others() -> None:
    model = OpenAI(model="small", user="{text}")
    both = with_tokens_of(Answer("b", 20, 3, "stop"), Answer("a", None, None, None), model.price_of)
    assert (both.price, both.prompt_tokens) == (1, None)
