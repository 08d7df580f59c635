"""Rows that share a request: what a refusal, a fault of the run and the log make of them."""

import asyncio
import gc
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.endpoint.account import NoAccount
from overnight.tasks.infer.endpoint.client import Limits
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.earlier_answers import NoEarlier
from overnight.tasks.infer.endpoint.response_log import ResponseLog
from overnight.tasks.infer.endpoint.transport import Transport
from overnight.tasks.storage.location import Location
from overnight.tasks.workers.spending import Amount
from tests.tasks.infer.chat_server import Reply, refusal, server_of
from tests.tasks.infer.retrieval_server import RetrievalServer


@dataclass
class Words:
    words: list[str]
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Echo:
    """A dialect whose endpoint returns the `index` of each vector, and whose rows share a request by threes."""

    path = "/embeddings"

    def test_body(self, body: Any) -> Any:
        return {"model": "m", "input": ["Hi"]}

    def most_tokens(self, body: Any) -> float:
        return 1

    def answer(self, content: bytes) -> Words:
        return Words([str(item["index"]) for item in json.loads(content)["data"]])

    def kept(self, fields: Any) -> Words:
        return Words(**fields)

    def fits(self, bodies: Any) -> bool:
        return len(bodies) <= 3

    def joined(self, bodies: Any) -> Any:
        return {"model": "m", "input": [body["input"][0] for body in bodies]}

    def parts(self, answer: Words, bodies: Any) -> list[Words | None]:
        return [Words([f"{body['input'][0]}@{word}"]) for body, word in zip(bodies, answer.words, strict=True)]


NO_EARLIER: NoEarlier[Words] = NoEarlier()


def requests_to(
    server: RetrievalServer, folder: Path, earlier: NoEarlier[Words] = NO_EARLIER
) -> ConcurrentRequests[Words]:
    limits = Limits(4, 5, 20, 2, gives_up=False, requests_per_minute=None, tokens_per_minute=None)
    dialect = Echo()
    transport = Transport(server.url, dialect.path, None, {}, 4)
    return ConcurrentRequests(
        dialect,
        [transport],
        limits,
        ResponseLog(Location(str(folder))),
        grouping=dialect,
        earlier=earlier,
        account=NoAccount(),
        price_of=lambda prompt, answer, cached: Amount(prompt + answer),
    )


def bodies_of(*texts: str) -> list[Any]:
    return [{"input": [text]} for text in texts]


def test_rows_share_requests_in_their_order_and_each_has_its_own_answer_in_the_log(tmp_path: Path) -> None:
    with server_of(RetrievalServer()) as server:
        first = requests_to(server, tmp_path).answers(["1", "2", "3", "4"], bodies_of("a", "b", "c", "d"))
        assert [answer.words for answer in first] == [["a@0"], ["b@1"], ["c@2"], ["d@0"]]
        assert sorted(map(server.asked, server.bodies)) == [["a", "b", "c"], ["d"]]
        later = requests_to(server, tmp_path)
        again = later.answers(["2", "4", "5"], bodies_of("b", "d", "e"))
        assert [answer.words for answer in again] == [["b@1"], ["d@0"], ["e@0"]]
        assert server.asked(server.bodies[-1]) == ["e"]
        earlier = later.earlier_answer()
        assert earlier is not None
        assert "@" in earlier.words[0]


def test_an_answer_or_a_failure_in_place_of_a_body_costs_no_request(tmp_path: Path) -> None:
    known, failure = Words(["known"]), RowError("no text")
    with server_of(RetrievalServer()) as server:
        answers = requests_to(server, tmp_path).answers(["1", "2", "3"], [known, *bodies_of("a"), failure])
        assert answers == [known, Words(["a@0"]), failure]
        assert len(server.bodies) == 1


def test_the_halves_of_a_refused_request_are_requested_down_to_the_row(tmp_path: Path) -> None:
    with server_of(RetrievalServer()) as server:
        server.always["b"] = refusal(422, "odd")
        answers = requests_to(server, tmp_path).answers(["1", "2", "3"], bodies_of("a", "b", "c"))
        assert [isinstance(answer, RowError) for answer in answers] == [False, True, False]
        assert list(map(server.asked, server.bodies)) == [["a", "b", "c"], ["a", "b"], ["a"], ["b"], ["c"]]


def test_a_fault_of_the_whole_run_ends_the_call_and_splits_nothing(tmp_path: Path) -> None:
    with server_of(RetrievalServer()) as server:
        server.down = Reply(404, {"error": {"message": "no such model", "code": "model_not_found"}})
        with pytest.raises(JobError, match="no such model"):
            requests_to(server, tmp_path).answers(["1", "2", "3"], bodies_of("a", "b", "c"))
        assert len(server.bodies) == 1


class Slow(NoEarlier[Words]):
    """A folder of answers, far away, which is searched for two rows at the same time."""

    def __init__(self) -> None:
        self._both = asyncio.Barrier(2)

    async def find(self, key: str, row_id: str, body: Any) -> Words | None:
        await asyncio.wait_for(self._both.wait(), 5)
        return Words(["earlier"])


def test_earlier_answers_of_a_call_are_searched_at_the_same_time(tmp_path: Path) -> None:
    with server_of(RetrievalServer()) as server:
        answers = requests_to(server, tmp_path, Slow()).answers(["1", "2"], bodies_of("a", "b"))
        assert answers == [Words(["earlier"])] * 2
        assert not server.bodies


def test_a_row_that_is_twice_in_a_call_is_paid_once(tmp_path: Path) -> None:
    with server_of(RetrievalServer()) as server:
        answers = requests_to(server, tmp_path).answers(["1", "2", "1"], bodies_of("a", "b", "a"))
        assert answers == [Words(["a@0"]), Words(["b@1"]), Words(["a@0"])]
        assert list(map(server.asked, server.bodies)) == [["a", "b"]]


def test_requests_that_nobody_has_a_use_for_leave_no_thread_and_no_connection(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with server_of(RetrievalServer()) as server:
        requests = requests_to(server, tmp_path)
        requests.answers(["1"], bodies_of("a"))
        [thread] = [each for each in set(threading.enumerate()) - before if each.name == "requests"]
        files = len(os.listdir("/proc/self/fd"))
        del requests
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()
        assert len(os.listdir("/proc/self/fd")) <= files - 4  # three of the loop, one connection
