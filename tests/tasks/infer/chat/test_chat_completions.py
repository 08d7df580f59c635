"""Bodies with status 200: what no request needs to show. The contract suite of endpoints has whole answers."""

import json
from typing import Any

import pytest

from overnight.tasks.infer.chat.chat_completions import ChatCompletions, answer_of
from overnight.tasks.infer.endpoint.faults import Blame, Fault


def body(*texts: Any, index: Any = None, usage: Any = None) -> bytes:
    places = index or range(len(texts))
    choices = [{"index": place, "message": {"content": text}} for place, text in zip(places, texts, strict=True)]
    return json.dumps({"choices": choices, "usage": usage}).encode()


@pytest.mark.parametrize(
    ("index", "order"), [([2, 0, 1], "bca"), ([1, 0, 0], "abc"), ([None, 1, 0], "abc"), (["2", "1", "0"], "abc")]
)
def test_choices_are_in_the_order_of_different_numbers(index: list[Any], order: str) -> None:
    answer = answer_of(body("a", "b", "c", index=index), 3)
    assert [answer.text, *(other[0] for other in answer.others)] == list(order)


def test_texts_beyond_those_of_the_request_are_left_out() -> None:
    assert len(answer_of(body("a", "b", "c"), 2).others) == 1


@pytest.mark.parametrize(
    ("count", "tokens"),
    [(3, 3), (3.0, 3), (0, 0), (True, None), ("3", None), (-1, None), (float("nan"), None), (2.0**64, None)],
)
def test_a_number_of_tokens_is_a_whole_number_that_a_column_can_hold_or_none(count: Any, tokens: int | None) -> None:
    assert answer_of(body("a", usage={"prompt_tokens": count}), 1).prompt_tokens == tokens
    assert answer_of(body("a", usage=count), 1).prompt_tokens is None


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_stays() -> None:
    assert answer_of(body("\ud83e\udd89 \ud83e"), 1).text == "🦉 \ufffd"


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"{}", b"[" * 100_000, b"\xff"])
def test_a_body_that_is_not_a_completion_is_the_servers_fault(content: bytes) -> None:
    with pytest.raises(Fault) as found:
        answer_of(content, 1)
    assert found.value.blame is Blame.SERVER


def test_an_error_in_a_choice_is_not_an_answer() -> None:
    choices = [{"message": {"content": "half"}, "error": {"code": "content_filter", "message": "flagged"}}]
    with pytest.raises(Fault, match="flagged") as found:
        answer_of(json.dumps({"choices": choices}).encode(), 1)
    assert found.value.blame is Blame.ROW


def test_an_image_counts_as_many_tokens_as_another_however_long_its_data_url_is() -> None:
    def tokens(length: int) -> float:
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * length}}
        content = [{"type": "text", "text": "What is this?"}, image]
        return ChatCompletions().most_tokens({"messages": [{"role": "user", "content": content}], "max_tokens": 7})

    assert tokens(1_000_000) == tokens(10) < 2000
