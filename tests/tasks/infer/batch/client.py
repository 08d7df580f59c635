"""A client of batches in a process of its own, for tests that kill it: `python -m ... URL FOLDER [KEY=VALUE ...]`.

It seals rows once, fills the log of answers, and prints the record as JSON. Its clock is the server's.
"""

import functools
import json
import sys
from pathlib import Path
from typing import Any

import httpx

from overnight.tasks.infer.batch.cap import Cap
from overnight.tasks.infer.batch.collection import Collection
from overnight.tasks.infer.batch.filling import Filling
from overnight.tasks.infer.batch.parts import Parts, Request
from overnight.tasks.infer.batch.records import Clock, Records
from overnight.tasks.infer.batch.sealing import provider_of
from overnight.tasks.infer.endpoint.response_log import ResponseLog, key_of
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.storage.location import Location

ROWS, ROWS_A_PART = 30, 10


def model_of(url: str, **batch: Any) -> OpenAI:
    dialect = batch.get("dialect", "openai")
    own = {"dialect": dialect} if dialect in ("anthropic", "gemini") else {}
    prices = {"price_per_million_input_tokens": 1.0, "price_per_million_output_tokens": 2.0}
    settings = {"model": "m", "user": "{t}", "max_new_tokens": 5, "base_url": url, **prices, **own}
    return OpenAI(**settings, batch={"rows": ROWS_A_PART, "poll_seconds": 600, **batch})


@functools.cache
def bodies(dialect: str = "openai") -> list[dict[str, Any]]:
    model = model_of("http://127.0.0.1:9/v1", dialect=dialect)
    return [model.body([{"role": "user", "content": f"text {number}"}]) for number in range(ROWS)]


@functools.cache
def keys(dialect: str = "openai") -> list[str]:
    return [key_of(str(number), body) for number, body in enumerate(bodies(dialect))]


def server_clock(url: str) -> Clock:
    address, client = url.removesuffix("/v1") + "/clock", httpx.Client()

    def pause(seconds: float) -> None:
        client.post(address, json={"seconds": seconds})

    return Clock(lambda: float(client.get(address).json()["now"]), pause)


def filling(
    url: str,
    folder: Path,
    clock: Clock,
    deadline: float | None = None,
    budget: dict[str, float] | None = None,
    first_rows: int | None = None,
    **settings: Any,
) -> Filling:
    """The batches of 30 rows, sealed in three parts if they are not yet."""
    model = model_of(url, **settings)
    chosen = model.batch
    assert chosen
    provider, answers = provider_of(model, chosen), Location(str(folder / "answers"))
    parts = Parts(Location(str(folder / "batches")), "20261128T000000-abc")
    cap = Cap(budget or {}, model, chosen.price, answers)
    if not parts.is_sealed():
        pairs = zip(keys(chosen.dialect), bodies(chosen.dialect), strict=True)
        requests = [Request(key, json.dumps(body), 10.0, f"later {key}") for key, body in pairs]
        list(parts.seal(requests, provider.line, chosen, first_rows))
        parts.finish(clock.now())
    collection = Collection(provider, model.protocol(), answers, chosen.price, model.whole_answers())
    return Filling(Records(parts, collection), provider, chosen, cap, clock, deadline)


def answered(folder: Path, dialect: str = "openai") -> set[str]:
    """The keys that the log of answers finds."""
    (folder / "answers").mkdir(exist_ok=True)
    log = ResponseLog(Location(str(folder / "answers")))
    found = {}
    for number, key in enumerate(keys(dialect)):
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
