"""Embeddings of texts from an endpoint: OpenAI, Azure, vLLM, SGLang, a gateway, or TEI on its own route.

In and out: retrieval/text_vectors.py.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.settings import Service
from overnight.tasks.infer.predictor import Offer, Predict
from overnight.tasks.infer.retrieval.embeddings import EmbeddingRequests, dialect_of
from overnight.tasks.infer.retrieval.text_vectors import TextVectors
from overnight.tasks.storage.location import Location


class EndpointEmbedding(Service, TextVectors):
    """Requests vectors of texts from an endpoint."""

    kind: Literal["endpoint_embedding"] = "endpoint_embedding"
    offer: ClassVar[Offer] = Offer(
        "vectors of texts, for search and clustering, by an endpoint",
        "text",
        "text-embedding-3-small",
        lambda column: {"text_column": column},
    )
    model: Annotated[str, Field(min_length=1, description="The model's name at the endpoint.")]
    base_url: Annotated[
        str, Field(pattern=r"^(https?://|\$\{)", description="The endpoint's URL, without /embeddings or /embed.")
    ] = "https://api.openai.com/v1"
    api: Annotated[
        Literal["openai", "tei"],
        Field(
            description="The requests: openai (POST /embeddings), or tei (POST /embed of text-embeddings-inference), "
            "which refuses a text that is too long instead of cutting it."
        ),
    ] = "openai"

    def token_price(self) -> float | None:
        return self.price_per_million_input_tokens

    def protocol(self) -> EmbeddingRequests:
        return dialect_of(self.api, self.inputs_per_request, self.encoding, self.max_input_tokens)

    def fields(self, text: str) -> Body:
        if self.api == "tei":
            return {"inputs": [text], "truncate": False}
        return {"model": self.model, "input": [text]}

    def load(self) -> Predict:
        return self.load_with(None)

    def load_with(self, log_place: Location | None) -> Predict:
        return self.asking(self.requests_to_service(log_place))
