"""Scores of documents for a query by vLLM, which each worker starts. In and out: retrieval/document_scores.py."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from overnight.tasks.infer.chat.vllm_server import SERVED, VLLMEngine
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.predictor import Offer, Predict
from overnight.tasks.infer.retrieval.document_scores import DocumentScores


class VLLMRerank(VLLMEngine, DocumentScores):
    """Makes scores of a row's documents for its query by vLLM, in an environment of its own."""

    kind: Literal["vllm_rerank"] = "vllm_rerank"
    offer: ClassVar[Offer] = Offer(
        "scores of each text for a query, by a reranker on vLLM",
        "text",
        "BAAI/bge-reranker-v2-m3",
        lambda column: {"query": "What is good?", "documents_column": column},
    )

    runner: ClassVar[str | None] = "pooling"

    def fields(self, query: str, documents: Sequence[str]) -> Body:
        return {"model": SERVED, "query": query, "documents": documents}

    def load(self) -> Predict:
        server = self.server()
        return self.answered_by(server, self.asking(self.requests_to_server(server)))
