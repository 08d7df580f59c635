"""What becomes of the scores in an answer: each document has its own, in the order of the row's list."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import RowError
from overnight.tasks.infer.models.rerank import Rerank
from overnight.tasks.storage.location import Location
from tests.tasks.infer.retrieval_server import RetrievalServer, score_of

DOCUMENTS = ["a cat", "a dog", "a red house", "a cat"]
SETTINGS = {"query": "{query}", "documents_column": "documents", "model": "small", "max_tries": 2}


def rank(server: RetrievalServer, rows: list[tuple[Any, Any]], journal: Location | None = None, **settings: Any) -> Any:
    batch = {name: np.empty(len(rows), object) for name in ("query", "documents", "row_id")}
    for number, (query, documents) in enumerate(rows):
        batch["query"][number], batch["documents"][number], batch["row_id"][number] = query, documents, f"r{number}"
    return Rerank(**{"base_url": server.url} | SETTINGS | settings).load_with(journal)(batch)


@pytest.mark.parametrize("settings", [{}, {"api": "tei"}, {"is_sglang": True}], ids=str)
def test_sorted_answers_are_put_back_into_the_order_of_the_documents(
    server: RetrievalServer, settings: dict[str, Any]
) -> None:
    server.is_sglang = settings.pop("is_sglang", False)
    done = rank(server, [("pets", DOCUMENTS), ("homes", DOCUMENTS[:1])], price_per_million_input_tokens=1.0, **settings)
    expected = [[score_of("pets", text) for text in DOCUMENTS], [score_of("homes", DOCUMENTS[0])]]
    assert done.columns["scores"].to_pylist() == expected
    assert done.columns["cost"].null_count == (0 if not settings and not server.is_sglang else 2)


def test_no_documents_give_no_scores_without_a_request_and_null_fails_its_row(server: RetrievalServer) -> None:
    rows = [("a", []), ("a", None), (None, ["b"]), ("a", ["b", None]), ("a", 1), ("a", [1]), ("a", ["b"])]
    done = rank(server, rows, price_per_million_input_tokens=1.0)
    assert list(done.failed) == [1, 2, 3, 4, 5]
    for row, words in enumerate(("documents", "query", "documents", "expected texts", "int 1"), 1):
        assert isinstance(done.failed[row], RowError)
        assert words in str(done.failed[row])
    assert done.columns["scores"].to_pylist()[0] == []
    assert done.columns["cost"].to_pylist()[0] == 0
    assert len(server.bodies) == 1


ODD = {
    "one missing": (lambda results: results[1:], "each of 4 documents, found 3"),
    "none": (lambda results: [], "found 0"),
    "one twice": (lambda results: [*results, results[0]], "found 5"),
    "an index twice": (lambda results: [results[0], *results[:3]], "found 4"),
    "without an index": (lambda results: [{"relevance_score": 1.0}] * 4, "None"),
    "an index beyond": (lambda results: [item | {"index": item["index"] + 1} for item in results], "found 4"),
    "NaN": (lambda results: [item | {"relevance_score": float("nan")} for item in results], "found nan"),
    "null": (lambda results: [item | {"relevance_score": None} for item in results], "found None"),
    "no score": (lambda results: [{"index": item["index"]} for item in results], "found None"),
    "a text": (lambda results: [item | {"relevance_score": "high"} for item in results], "found 'high'"),
    "a score for each class": (lambda results: [item | {"relevance_score": [1, 2]} for item in results], "[1, 2]"),
}


@pytest.mark.parametrize(("change", "words"), ODD.values(), ids=list(ODD))
def test_an_answer_without_a_score_for_each_document_fails_its_row_and_is_paid_once(
    server: RetrievalServer, change: Any, words: str, tmp_path: Path
) -> None:
    server.changed = lambda answer: answer | {"results": change(answer["results"])}
    for _ in range(2):
        done = rank(server, [("pets", DOCUMENTS)], Location(str(tmp_path)))
        assert words in str(done.failed[0])
        assert "prompt tokens" in str(done.failed[0])
        assert len(server.bodies) == 1


def test_a_text_is_one_document_and_a_query_may_be_the_same_for_all(server: RetrievalServer) -> None:
    done = rank(server, [("x", "a cat"), ("y", "a dog")], query="What about {query}?")
    expected = [[score_of("What about x?", "a cat")], [score_of("What about y?", "a dog")]]
    assert done.columns["scores"].to_pylist() == expected
    assert rank(server, [("x", "a cat")], query="pets").columns["scores"][0][0].as_py() == score_of("pets", "a cat")


def test_results_may_be_in_the_field_data(server: RetrievalServer) -> None:
    server.changed = lambda answer: {"data": answer["results"], "usage": answer["usage"]}
    assert not rank(server, [("pets", DOCUMENTS)]).failed


def test_tei_refuses_a_long_document_instead_of_cutting_it(server: RetrievalServer) -> None:
    server.longest = 5
    done = rank(server, [("a", ["one two three four"]), ("a", ["one"])], api="tei")
    assert list(done.failed) == [0]
    assert "must have less than 5 tokens" in str(done.failed[0])


def test_a_number_of_best_documents_is_refused() -> None:
    with pytest.raises(ValidationError, match="expected no top_n"):
        Rerank(base_url="http://a", extra_body={"top_n": 3}, **SETTINGS)
