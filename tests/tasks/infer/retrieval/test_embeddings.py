"""Vectors of a request back to their texts, the shares of its tokens, and the groups of texts."""

import json
import random

import pytest

from overnight.tasks.infer.endpoint.faults import Blame, Fault
from overnight.tasks.infer.retrieval.embeddings import Embeddings, dialect_of, shares

OPENAI = dialect_of("openai", 3, "base64", None)
TEI = dialect_of("tei", 3, "base64", None)


def test_shares_of_tokens_are_whole_and_their_sum_is_the_tokens() -> None:
    chance = random.Random(0)
    for _ in range(200):
        sizes, tokens = chance.choices(range(1000), k=chance.randint(1, 50)), chance.randint(0, 10**6)
        parts = shares(tokens, sizes)
        assert sum(part or 0 for part in parts) == (tokens if sum(sizes) else 0)
        assert all(isinstance(part, int) and part >= 0 for part in parts)
    assert shares(10, [0, 3, 0]) == [0, 10, 0]
    assert shares(None, [1, 2]) == [None, None]


@pytest.mark.parametrize(
    ("vectors", "indices", "order"),
    [
        ("ab", [1, 0], ["b", "a"]),
        ("ab", [], ["a", "b"]),
        ("a", [1], [None, "a"]),
        ("a", [], [None, None]),
        ("abc", [], [None, None]),
        ("abb", [0, 1, 1], ["a", None]),
        ("ab", [1, 2], [None, None]),
        ("ab", [0, True], [None, None]),
        ("ab", [0, 1.0], [None, None]),
        ("ab", [0, None], [None, None]),
    ],
)
def test_a_vector_belongs_to_a_text_only_if_the_answer_is_certain(vectors: str, indices: list, order: list) -> None:
    assert Embeddings(list(vectors), 1, indices).in_order(2) == order


@pytest.mark.parametrize("content", [{"data": None}, {"choices": []}, {"data": [1]}, [1.0, 2.0], "text", None])
def test_another_answer_is_the_servers_fault(content: object) -> None:
    for dialect in (OPENAI, TEI):
        with pytest.raises(Fault) as caught:
            dialect.answer(json.dumps(content).encode())
        assert caught.value.blame is Blame.SERVER


def test_texts_that_may_be_cut_and_texts_beyond_the_number_have_another_request() -> None:
    short, long = {"input": ["a" * 10]}, {"input": ["\u00e4" * 46]}
    assert OPENAI.fits([short] * 3)
    assert not OPENAI.fits([short] * 4)
    limited = dialect_of("openai", 3, "float", 100)
    assert limited.fits([short] * 3)
    assert not limited.fits([short, long]), "92 bytes and 8 special tokens may be 100 tokens"


def test_the_request_of_several_texts_is_that_of_one_with_all_texts() -> None:
    bodies = [{"model": "m", "input": [text], "dimensions": 4} for text in ("a", "bb")]
    joined = OPENAI.joined(bodies)
    assert joined == {"model": "m", "input": ["a", "bb"], "dimensions": 4, "encoding_format": "base64"}
    assert OPENAI.test_body(joined)["input"] == ["Hi"]
    assert OPENAI.most_tokens(joined) == 3 / 4


def test_the_tokens_of_a_request_are_those_of_the_texts_that_it_answers() -> None:
    bodies = [{"input": [text]} for text in ("a", "bb", "c")]
    first, missing, third = OPENAI.parts(Embeddings(["x", "y"], 10, [0, 2]), bodies)
    assert missing is None
    assert first == Embeddings(["x"], 5)
    assert third == Embeddings(["y"], 5)
