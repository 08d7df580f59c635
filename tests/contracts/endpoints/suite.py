"""The leaves that ask an endpoint, each with an adapter, and the ways of the tests to ask it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args

import numpy as np

from overnight.tasks.infer.chat.remote_chat import RemoteChat
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.models.vllm import VLLM
from overnight.tasks.infer.predictor import Predict
from overnight.tasks.storage.location import Location
from tests.contracts.suite import Suite, kinds_of
from tests.tasks.infer.chat_server import ChatServer


@dataclass(frozen=True)
class Adapter:
    """`make`: the leaf with settings, for an endpoint; `load`: what asks it, with a journal or none."""

    make: Callable[..., RemoteChat]
    load: Callable[[RemoteChat, str, Location | None], Predict]


def _openai(url: str, **settings: Any) -> OpenAI:
    return OpenAI(model="small", base_url=url, **settings)


def _vllm(url: str, **settings: Any) -> VLLM:
    return VLLM(model="small", **settings)  # its worker starts the server itself, and knows the address only then


def _load_vllm(model: VLLM, url: str, journal: Location | None) -> Predict:
    requests: ConcurrentRequests[Any] = model.requests_to(url, None, journal)
    return model.asking(requests)


ADAPTERS = {
    "openai": Adapter(_openai, lambda model, _, journal: model.load_with(journal)),
    "vllm": Adapter(_vllm, _load_vllm),
}

ASKING = [leaf for leaf in get_args(get_args(AnyPredictor)[0]) if issubclass(leaf, RemoteModel)]
ENDPOINTS = Suite("Endpoints", kinds_of(Annotated[Union[tuple(ASKING)], None]), ADAPTERS)  # noqa: UP007 - by a list


def batch_of(texts: list[str]) -> dict[str, Any]:
    columns = {"text": texts, "row_id": [f"r{i}" for i in range(len(texts))]}
    return {name: np.array(values, object) for name, values in columns.items()}


def ask(leaf: Adapter, server: ChatServer, texts: list[str], journal: Location | None = None, **settings: Any) -> Any:
    usual = {"user": "{text}", "max_tries": 3, "max_concurrent_requests": 4, "retry_timeout_seconds": 90}
    model = leaf.make(server.url, **usual | settings)
    return leaf.load(model, server.url, journal)(batch_of(texts))
