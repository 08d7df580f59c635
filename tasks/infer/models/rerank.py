"""Scores of documents for a query, by a reranker behind an endpoint: vLLM, SGLang, Cohere, Jina, Voyage, TEI.

In and out: retrieval/document_scores.py.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.settings import Service
from overnight.tasks.infer.predictor import Offer, Predict
from overnight.tasks.infer.retrieval.document_scores import DocumentScores
from overnight.tasks.infer.retrieval.rankings import RankingRequests, dialect_of
from overnight.tasks.storage.location import Location


class Rerank(Service, DocumentScores):
    """Requests scores of a row's documents for its query."""

    kind: Literal["rerank"] = "rerank"
    offer: ClassVar[Offer] = Offer(
        "scores of each text for a query, by a reranker behind an endpoint",
        "text",
        "BAAI/bge-reranker-v2-m3",
        lambda column: {"query": "What is good?", "documents_column": column},
    )
    model: Annotated[str, Field(min_length=1, description="The model's name at the endpoint.")]
    base_url: Annotated[str, Field(pattern=r"^(https?://|\$\{)", description="The endpoint's URL, without /rerank.")]
    api: Annotated[
        Literal["cohere", "tei"],
        Field(
            description="The requests: cohere (also vLLM, SGLang, Jina, Voyage), or tei (text-embeddings-inference), "
            "which refuses a document that is too long instead of cutting it."
        ),
    ] = "cohere"

    def token_price(self) -> float | None:
        return self.price_per_million_input_tokens

    def protocol(self) -> RankingRequests:
        return dialect_of(self.api)

    def fields(self, query: str, documents: Sequence[str]) -> Body:
        if self.api == "tei":
            return {"query": query, "texts": documents, "truncate": False}
        return {"model": self.model, "query": query, "documents": documents}

    def load(self) -> Predict:
        return self.load_with(None)

    def load_with(self, log_place: Location | None) -> Predict:
        return self.asking(self.requests_to_service(log_place))
