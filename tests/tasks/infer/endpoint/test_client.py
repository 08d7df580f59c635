"""The client of an endpoint in a dialect of its own, and its rates. The contract suite of endpoints has the rest."""

import asyncio
from dataclasses import replace

from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.chat_completions import ChatCompletions
from overnight.tasks.infer.endpoint.client import Endpoint, Limits
from overnight.tasks.infer.endpoint.transport import Transport
from tests.tasks.infer.chat_server import ChatServer


class Loud(ChatCompletions):
    """Chat completions whose answers are in capitals."""

    def answer(self, content: bytes) -> Answer:
        answer = super().answer(content)
        return replace(answer, text=(answer.text or "").upper())


def test_an_endpoint_asks_and_reads_in_its_dialect_and_tries_again(server: ChatServer) -> None:
    server.faults["cat"] = [(503, "busy", {})]
    transport = Transport(server.url, Loud.path, "key", {}, 1)

    async def answer() -> Answer:
        limits = Limits(1, 30, 60, 3, gives_up=False, requests_per_minute=None, tokens_per_minute=None)
        return await Endpoint(Loud(), transport, limits).answer({"messages": [{"role": "user", "content": "cat"}]})

    assert asyncio.run(answer()).text == "TAC|TAC"
    assert server.requests()["cat"] == 2
    assert server.headers[0]["Authorization"] == "Bearer key"
