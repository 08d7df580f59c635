"""Embeddings of texts by vLLM, which each worker starts. In and out: retrieval/text_vectors.py."""

from typing import ClassVar, Literal

from overnight.tasks.infer.chat.vllm_server import SERVED, VLLMEngine
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.predictor import Offer, Predict
from overnight.tasks.infer.retrieval.text_vectors import TextVectors


class VLLMEmbedding(VLLMEngine, TextVectors):
    """Makes vectors of texts by vLLM, in an environment of its own."""

    kind: Literal["vllm_embedding"] = "vllm_embedding"
    offer: ClassVar[Offer] = Offer(
        "vectors of texts, for search and clustering, by vLLM on GPUs",
        "text",
        "Qwen/Qwen3-Embedding-0.6B",
        lambda column: {"text_column": column},
    )

    runner: ClassVar[str | None] = "pooling"

    def fields(self, text: str) -> Body:
        return {"model": SERVED, "input": [text]}

    def load(self) -> Predict:
        server = self.server()
        return self.answered_by(server, self.asking(self.requests_to_server(server)))
