"""A client of batches in a process of its own, for tests that kill it: `python -m ... URL FOLDER [KEY=VALUE ...]`.

It seals rows once, fills the log of answers, and prints the record as JSON. Its clock is the server's.
"""

import json
import sys
from pathlib import Path
from typing import Any

import httpx

from overnight.tasks.infer.batch.collection import Collection
from overnight.tasks.infer.batch.connection import Connection
from overnight.tasks.infer.batch.dialects.openai import VARIANTS, OpenAIBatches
from overnight.tasks.infer.batch.filling import Clock, Filling
from overnight.tasks.infer.batch.parts import Parts, Request
from overnight.tasks.infer.batch.settings import BatchSettings
from overnight.tasks.infer.chat.chat_completions import ChatCompletions
from overnight.tasks.infer.endpoint.response_log import ResponseLog, key_of
from overnight.tasks.storage.location import Location

ROWS, ROWS_A_PART = 30, 10


def body_of(number: int) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": f"text {number}"}], "max_tokens": 5}


def keys() -> list[str]:
    return [key_of(str(number), body_of(number)) for number in range(ROWS)]


def server_clock(url: str) -> Clock:
    address, client = url.removesuffix("/v1") + "/clock", httpx.Client()

    def pause(seconds: float) -> None:
        client.post(address, json={"seconds": seconds})

    return Clock(lambda: float(client.get(address).json()["now"]), pause)


def filling(url: str, folder: Path, clock: Clock, deadline: float | None = None, **settings: Any) -> Filling:
    """The batches of 30 rows, sealed in three parts if they are not yet."""
    chosen = BatchSettings(**{"rows": ROWS_A_PART, "poll_seconds": 600, **settings})
    provider = OpenAIBatches(Connection(url, None, {}), VARIANTS[chosen.dialect], chosen.window)
    parts = Parts(Location(str(folder / "batches")), "20261128T000000-abc")
    if not parts.is_sealed():
        requests = [Request(key, json.dumps(body_of(number)), 10.0) for number, key in enumerate(keys())]
        list(parts.seal(requests, provider.line, chosen))
        parts.finish(clock.now())
    collection = Collection(provider, ChatCompletions(), Location(str(folder / "answers")), chosen.price)
    return Filling(parts, provider, collection, chosen, clock, deadline)


def answered(folder: Path) -> set[str]:
    """The keys that the log of answers finds."""
    (folder / "answers").mkdir(exist_ok=True)
    log = ResponseLog(Location(str(folder / "answers")))
    found = {}
    for number, key in enumerate(keys()):
        answer = log.find(key)
        if answer is not None:
            assert answer["text"] == f"text {number}"[::-1]
            assert answer["price"] == 0.5
            found[key] = answer
    return set(found)


if __name__ == "__main__":
    url, folder, *pairs = sys.argv[1:]
    chosen = {name: json.loads(value) for name, value in (pair.split("=", 1) for pair in pairs)}
    print(json.dumps(filling(url, Path(folder), server_clock(url), **chosen).run()))
