"""The client of an endpoint in a dialect of its own, and its rates. The contract suite of endpoints has the rest."""

import asyncio
import time
from dataclasses import replace

from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.chat_completions import ChatCompletions
from overnight.tasks.infer.endpoint.client import Endpoint, Limits, RateLimiter
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


def test_amounts_pass_evenly_over_the_minute() -> None:
    async def seconds(limiter: RateLimiter, amounts: list[float]) -> float:
        start = time.monotonic()
        for amount in amounts:
            await limiter.wait(amount)
        return time.monotonic() - start

    assert asyncio.run(seconds(RateLimiter(None), [1e9, 1e9])) < 1
    assert asyncio.run(seconds(RateLimiter(600), [2, 1, 1])) >= 0.3
    corrected = RateLimiter(600)
    asyncio.run(corrected.wait(1000))
    corrected.correct(-1000)
    assert asyncio.run(seconds(corrected, [1])) < 5
