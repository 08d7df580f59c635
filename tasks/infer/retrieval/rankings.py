"""The dialects of rerankers: `/rerank` of vLLM, SGLang, Cohere, Jina and Voyage, and that of TEI.

The answers differ in names only: objects with `index` and `relevance_score` or `score`, the best first. They are a bare
list (SGLang, TEI), or the list `results` or `data` of an object.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from overnight.tasks.errors import RowError
from overnight.tasks.infer.endpoint.client import CHARACTERS_A_TOKEN, Body
from overnight.tasks.infer.endpoint.json_answers import not_an_answer, payload_of, tokens_in

EXPECTED = "scores of documents"


@dataclass(frozen=True)
class Ranking:
    """The scores of documents, and the positions of these documents in the request."""

    indices: Sequence[Any]
    scores: Sequence[Any]
    prompt_tokens: int | None

    @property
    def completion_tokens(self) -> int:
        return 0

    def in_order(self, count: int) -> list[float]:
        """Return the score of each of `count` documents. Raise `RowError` unless each has exactly one."""
        if self.indices.count(None) or sorted(map(str, self.indices)) != sorted(map(str, range(count))):
            raise RowError(
                f"expected a score for each of {count} documents, found {len(self.indices)} with the indices "
                f"{str(list(self.indices))[:80]}."
            )
        scores = dict(zip(map(int, self.indices), self.scores, strict=True))
        for score in scores.values():
            if not isinstance(score, int | float) or isinstance(score, bool) or not math.isfinite(score):
                raise RowError(f"expected finite numbers as scores, found {score!r:.80}.")
        return [float(scores[index]) for index in range(count)]


@dataclass(frozen=True)
class RankingRequests:
    """Requests for the scores of one row's documents, which are in the field `documents` of the request."""

    documents: str
    path = "/rerank"

    def test_body(self, body: Body) -> Body:
        return body | {"query": "Hi", self.documents: ["Hi"]}

    def most_tokens(self, body: Body) -> float:
        documents = body[self.documents]
        return (len(body["query"]) * len(documents) + sum(map(len, documents))) / CHARACTERS_A_TOKEN

    def answer(self, content: bytes) -> Ranking:
        """Raise `Fault` also for an error with status 200, and for a body without scores."""
        payload = items = payload_of(content, EXPECTED)
        if isinstance(payload, dict):
            items = payload.get("results", payload.get("data"))
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise not_an_answer(payload, EXPECTED)
        scores = [item.get("relevance_score", item.get("score")) for item in items]
        tokens = tokens_in(payload, "prompt_tokens", "total_tokens")
        return Ranking([item.get("index") for item in items], scores, tokens)

    def kept(self, fields: dict[str, Any]) -> Ranking:
        return Ranking(**fields)


def dialect_of(name: Literal["cohere", "tei"]) -> RankingRequests:
    return RankingRequests("texts" if name == "tei" else "documents")
