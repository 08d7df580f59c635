"""The leaves that ask an endpoint, each with an adapter, and the ways of the tests to ask it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args

import numpy as np

from overnight.tasks.infer.chat.remote_chat import RemoteChat
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.infer.models.endpoint_embedding import EndpointEmbedding
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.models.rerank import Rerank
from overnight.tasks.infer.models.vllm import VLLM
from overnight.tasks.infer.models.vllm_embedding import VLLMEmbedding
from overnight.tasks.infer.models.vllm_rerank import VLLMRerank
from overnight.tasks.infer.predictor import Predict
from overnight.tasks.infer.retrieval.document_scores import DocumentScores
from overnight.tasks.infer.retrieval.text_vectors import TextVectors
from overnight.tasks.storage.location import Location
from tests.contracts.suite import Suite, kinds_of
from tests.tasks.infer.chat_server import ChatServer


@dataclass(frozen=True)
class Adapter:
    """`make`: the leaf with settings, for an endpoint; `load`: what asks it, with a journal or none.

    `reads`: the settings that put the columns of a template into a request.
    """

    make: Callable[..., RemoteChat | TextVectors | DocumentScores]
    load: Callable[[Any, str, Location | None], Predict]
    reads: Callable[[str], dict[str, Any]] = lambda template: {"user": template}
    is_chat: bool = True


def _openai(url: str, **settings: Any) -> OpenAI:
    return OpenAI(model="small", base_url=url, **settings)


def _vllm(url: str, **settings: Any) -> VLLM:
    return VLLM(model="small", **settings)  # its worker starts the server itself, and knows the address only then


def _load_vllm(model: Any, url: str, journal: Location | None) -> Predict:
    requests: ConcurrentRequests[Any] = model.requests_to(url, None, journal)
    predict: Predict = model.asking(requests)
    return predict


def _embedding(url: str, **settings: Any) -> EndpointEmbedding:
    return EndpointEmbedding(**{"model": "small", "base_url": url, "inputs_per_request": 1} | settings)


def _embedded(template: str) -> dict[str, Any]:
    return {"text_column": "text", "prompt": template}


def _rerank(url: str, **settings: Any) -> Rerank:
    return Rerank(**{"model": "small", "base_url": url} | settings)


def _vllm_embedding(url: str, **settings: Any) -> VLLMEmbedding:
    return VLLMEmbedding(**{"model": "small", "inputs_per_request": 1} | settings)


def _vllm_rerank(url: str, **settings: Any) -> VLLMRerank:
    return VLLMRerank(model="small", **settings)


def _ranked(template: str) -> dict[str, Any]:
    return {"query": template, "documents_column": "documents"}


def _load(model: Any, _: str, journal: Location | None) -> Predict:
    predict: Predict = model.load_with(journal)
    return predict


ADAPTERS = {
    "openai": Adapter(_openai, _load),
    "vllm": Adapter(_vllm, _load_vllm),
    "endpoint_embedding": Adapter(_embedding, _load, _embedded, is_chat=False),
    "rerank": Adapter(_rerank, _load, _ranked, is_chat=False),
    "vllm_embedding": Adapter(_vllm_embedding, _load_vllm, _embedded, is_chat=False),
    "vllm_rerank": Adapter(_vllm_rerank, _load_vllm, _ranked, is_chat=False),
}

ASKING = [leaf for leaf in get_args(get_args(AnyPredictor)[0]) if issubclass(leaf, RemoteModel)]
ENDPOINTS = Suite("Endpoints", kinds_of(Annotated[Union[tuple(ASKING)], None]), ADAPTERS)  # noqa: UP007 - by a list


# What the kinds without messages leave out.
NO_CHAT = {
    **dict.fromkeys(("endpoint_embedding", "vllm_embedding"), "its requests have texts, not messages"),
    **dict.fromkeys(("rerank", "vllm_rerank"), "its requests have no messages"),
}
CHILDREN = ("vllm", "vllm_embedding", "vllm_rerank")  # their workers start the server


def batch_of(texts: list[str]) -> dict[str, Any]:
    documents = np.empty(len(texts), object)
    documents[:] = [["one document", "another"]] * len(texts)
    columns = {"text": texts, "row_id": [f"r{i}" for i in range(len(texts))]}
    return {name: np.array(values, object) for name, values in columns.items()} | {"documents": documents}


def ask(leaf: Adapter, server: ChatServer, texts: list[str], journal: Location | None = None, **settings: Any) -> Any:
    usual = {"max_tries": 3, "max_concurrent_requests": 4, "retry_timeout_seconds": 90}
    model = leaf.make(server.url, **leaf.reads("{text}") | usual | settings)
    return leaf.load(model, server.url, journal)(batch_of(texts))
