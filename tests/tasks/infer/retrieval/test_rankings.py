"""Scores of a sorted answer back to their documents. The suite of endpoints has the faults of answers."""

import json

import pytest

from overnight.tasks.infer.endpoint.faults import Blame, Fault
from overnight.tasks.infer.retrieval.rankings import dialect_of

SORTED = [{"index": 2, "score": 0.9}, {"index": 0, "score": 0.5}, {"index": 1, "score": -1}]


@pytest.mark.parametrize("content", [SORTED, {"results": SORTED}, {"data": SORTED}], ids=["list", "results", "data"])
def test_scores_are_in_the_order_of_the_documents(content: object) -> None:
    for name in ("cohere", "tei"):
        assert dialect_of(name).answer(json.dumps(content).encode()).in_order(3) == [0.5, -1.0, 0.9]  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [{"results": None}, {"choices": []}, [1], "text"])
def test_another_answer_is_the_servers_fault(content: object) -> None:
    with pytest.raises(Fault) as caught:
        dialect_of("cohere").answer(json.dumps(content).encode())
    assert caught.value.blame is Blame.SERVER


def test_the_test_request_has_one_short_document_and_the_query_counts_for_each_document() -> None:
    dialect = dialect_of("tei")
    body = {"query": "a" * 8, "texts": ["b" * 4, "c" * 4], "truncate": False}
    assert dialect.test_body(body) == {"query": "Hi", "texts": ["Hi"], "truncate": False}
    assert dialect.most_tokens(body) == (2 * 8 + 8) / 4
