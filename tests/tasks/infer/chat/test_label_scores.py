"""Log probabilities of servers, in all their forms, and the scores of choices."""

from typing import Any

import pytest

from overnight.tasks.errors import InvalidValues
from overnight.tasks.infer.chat.label_scores import of_first_tokens, of_log_probabilities, token_details


@pytest.mark.parametrize(
    "logprobs",
    [
        None, [], {}, {"content": None}, {"content": []}, {"content": [None]}, {"content": [{"token": "a"}]},
        {"content": [{"token": "a", "logprob": None}]}, {"content": [{"token": None, "logprob": -1.0}]},
        {"content": [{"token": "a", "logprob": float("nan")}]}, {"tokens": ["a"], "token_logprobs": [-1.0]},
        {"content": [{"token": "a", "logprob": -1.0}, {"token": "b"}]},
    ],
)  # fmt: skip
def test_logprobs_in_another_form_are_none(logprobs: Any) -> None:
    assert token_details(logprobs) == {}


def test_the_token_itself_is_among_the_first_tokens() -> None:
    top = [{"token": "b", "logprob": -2.0}, {"token": "c"}, None]
    content = [{"token": "a", "logprob": 0, "top_logprobs": top}, {"token": "d", "logprob": -3}]
    details = token_details({"content": content})
    assert details == {"mean_logprob": -1.5, "first_tokens": [("b", -2.0), ("a", 0)]}


def test_a_choice_gets_the_probability_of_all_tokens_that_begin_it() -> None:
    first_tokens = [["Yes", -1.0], ["Y", -1.0], [" Yes", -50.0], ["yes", -0.1], ["No", -1.0], ["\n", -0.1]]
    scores = of_first_tokens(["Yes", "No", "Maybe"], {"first_tokens": first_tokens})
    assert scores == {"Yes": pytest.approx(2 / 3), "No": pytest.approx(1 / 3), "Maybe": 0.0}


@pytest.mark.parametrize("details", [{}, {"first_tokens": [["maybe", -0.1]]}, {"first_tokens": [["", -0.1]]}])
def test_without_a_token_of_a_choice_there_are_no_scores(details: Any) -> None:
    with pytest.raises(InvalidValues, match="expected top_logprobs that have the first token of a choice"):
        of_first_tokens(["Yes", "No"], details)


def test_small_probabilities_of_long_texts_have_scores() -> None:
    assert of_log_probabilities(["a", "b"], [-2000.0, -2000.0]) == {"a": 0.5, "b": 0.5}
