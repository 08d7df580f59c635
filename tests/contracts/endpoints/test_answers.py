"""What an answer costs, and what becomes of its row: the table of answers, for every leaf."""

import time
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks import errors
from overnight.tasks.errors import RowError, ServiceUnavailable
from overnight.tasks.storage.location import Location
from tests.contracts.endpoints.answers import AWAY, EVERY_REQUEST, PAID, PASSING, REFUSED_ROWS, WORDS, Paid, words_of
from tests.contracts.endpoints.suite import ENDPOINTS, Adapter, ask
from tests.tasks.infer.chat_server import ChatServer, Reply, refusal

GOOD = ["good 1", "good 2", "good 3"]


def rows_of(case: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("case", case.values(), ids=list(case))


def test_every_leaf_is_in_the_suite() -> None:
    ENDPOINTS.assert_complete()


@rows_of(PAID)
@ENDPOINTS.promise("an answer that was paid for is asked for once, is in the journal, and gives its text or its reason")
def test_a_paid_answer(leaf: Adapter, case: Paid, server: ChatServer, tmp_path: Path) -> None:
    server.always["odd"] = case.reply
    settings = {"reasoning": case.reasoning is not None, **case.settings}
    for _ in range(2):
        done = ask(leaf, server, ["odd"], Location(str(tmp_path)), **settings)
        row = {name: values.to_pylist()[0] for name, values in done.columns.items()}
        if case.reason:
            assert isinstance(done.failed[0], RowError)
            assert case.reason in str(done.failed[0])
            assert len(str(done.failed[0])) < 900
            str(done.failed[0]).encode()
            assert "10 prompt tokens and 5 completion tokens" in str(done.failed[0]), "what a failed answer took"
        else:
            assert not done.failed
            assert (row["generated_text"], row.get("reasoning")) == (case.text, case.reasoning)
            assert (row["prompt_tokens"], row["completion_tokens"]) == case.tokens
        assert server.requests() == {"odd": 1}


@pytest.mark.parametrize("name", REFUSED_ROWS)
@ENDPOINTS.promise("a row that the server refuses alone is asked once and named in the server's words; others go on")
def test_a_refused_row(leaf: Adapter, name: str, server: ChatServer) -> None:
    reply = server.always["odd"] = REFUSED_ROWS[name]
    done = ask(leaf, server, [*GOOD, "odd", "good 4"])
    assert list(done.failed) == [3]
    assert isinstance(done.failed[3], RowError)
    assert (words_of(reply) or WORDS[name])[:200] in str(done.failed[3])
    requests = server.requests()
    assert requests["odd"] == 1
    assert requests.pop("Hi", 0) <= 1
    assert set(requests.values()) == {1}


@rows_of(PASSING)
@ENDPOINTS.promise("a fault that can pass by itself costs a try and no row")
def test_a_passing_fault(leaf: Adapter, case: Reply, server: ChatServer) -> None:
    server.faults["odd"] = [case]
    done = ask(leaf, server, [*GOOD, "odd"], timeout_seconds=0.8)
    assert not done.failed
    assert server.requests() == dict.fromkeys(GOOD, 1) | {"odd": 2}
    if "Retry-After" in dict(case.headers) or "reset" in str(case.headers) or "ms" in str(case.headers):
        first, second = [moment for moment, text in server.seen if text == "odd"]
        assert second - first >= 0.1 if case.status == 503 else 0.19


@pytest.mark.parametrize("name", [name for name in PASSING if "429" not in name])
@ENDPOINTS.promise("a fault of one row that does not pass ends after max_tries, in the server's words")
def test_a_lasting_fault_of_one_row(leaf: Adapter, name: str, server: ChatServer) -> None:
    server.always["odd"] = PASSING[name]
    done = ask(leaf, server, [*GOOD, "odd"], timeout_seconds=0.8)
    assert list(done.failed) == [3]
    assert server.requests()["odd"] == 3
    assert "in 3 tries" in str(done.failed[3])


@rows_of(EVERY_REQUEST)
@ENDPOINTS.promise(
    "a refused key, an empty account or a wrong model ends the run at the first answers, with no row blamed"
)
def test_every_request_is_refused(leaf: Adapter, case: Any, server: ChatServer) -> None:
    server.down, kind, most, words = case
    with pytest.raises(getattr(errors, kind)) as caught:
        ask(leaf, server, GOOD)
    assert words in str(caught.value)
    assert "secret-1" not in str(caught.value)
    assert sum(server.requests().values()) <= most + server.requests()["Hi"] - min(server.requests()["Hi"], 1)


@rows_of(AWAY)
@ENDPOINTS.promise("an endpoint that does not come back in time blames no row")
def test_an_endpoint_that_stays_away(leaf: Adapter, case: Any, server: ChatServer) -> None:
    server.down, words = case
    started = time.monotonic()
    with pytest.raises(ServiceUnavailable) as caught:
        ask(leaf, server, GOOD, retry_timeout_seconds=0.6)
    assert words in str(caught.value)
    assert time.monotonic() < started + 10


@pytest.mark.parametrize("fault", [refusal(503, "restarts"), Reply(None), Reply(502, b"<html>")], ids=str)
@ENDPOINTS.promise("an endpoint that is away for a while and comes back costs only waiting")
def test_an_endpoint_that_comes_back(leaf: Adapter, fault: Reply, server: ChatServer) -> None:
    server.faults = {text: [fault] * 4 for text in GOOD} | {"Hi": [fault] * 20}
    done = ask(leaf, server, GOOD, retry_timeout_seconds=30)
    assert not done.failed


@ENDPOINTS.promise("of a limit that is not worded, the largest request is told from all others after max_tries")
def test_a_limit_of_one_row_without_numbers(leaf: Adapter, server: ChatServer) -> None:
    long = "long " * 2000
    server.always[long] = refusal(429, "Too many tokens")
    done = ask(leaf, server, [*GOOD, long], retry_timeout_seconds=10)
    assert list(done.failed) == [3]
    assert server.requests()[long] <= 3


@ENDPOINTS.promise("after too many requests, all wait as long as the server says")
def test_a_limit_holds_for_all(leaf: Adapter, server: ChatServer) -> None:
    server.faults["first"] = [refusal(429, "Rate limit reached", ("Retry-After", "0.5"))]
    done = ask(leaf, server, ["first", "second"], max_concurrent_requests=1)
    assert not done.failed
    moments = [moment for moment, _ in server.seen]
    assert moments[1] - moments[0] >= 0.49
    assert len(moments) == 3
