"""What an answer costs, and what becomes of its row: the table of answers, for every leaf.

The rows of one table are asked together, so that each also shows that it costs no other row.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks import errors
from overnight.tasks.errors import InvalidValues, RowError, ServiceUnavailable
from overnight.tasks.storage.location import Location
from tests.contracts.endpoints.answers import (
    AWAY,
    EVERY_REQUEST,
    PAID,
    PASSING,
    REFUSED_ROWS,
    SETTINGS,
    WORDS,
    words_of,
)
from tests.contracts.endpoints.suite import ADAPTERS, ENDPOINTS, Adapter, ask, batch_of
from tests.tasks.infer.chat_server import ChatServer, Reply, completion, refusal

GOOD = ["good 1", "good 2", "good 3"]


def rows_of(case: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("case", case.values(), ids=list(case))


def test_every_leaf_is_in_the_suite() -> None:
    ENDPOINTS.assert_complete()


@pytest.mark.parametrize("group", SETTINGS)
@ENDPOINTS.promise(
    "an answer that was paid for is asked for once, is in the journal, and gives its text or its reason",
    **dict.fromkeys(("endpoint_embedding", "vllm_embedding"), "its answer is a vector: test_vectors.py"),
    **dict.fromkeys(("rerank", "vllm_rerank"), "its answers are scores: test_scores.py"),
)
def test_paid_answers(leaf: Adapter, group: str, server: ChatServer, tmp_path: Path) -> None:
    cases = {name: case for name, case in PAID.items() if case.settings == group}
    server.always = {name: case.reply for name, case in cases.items()}
    for _ in range(2):
        done = ask(leaf, server, list(cases), Location(str(tmp_path)), reasoning=True, **SETTINGS[group])
        columns = ("generated_text", "reasoning", "prompt_tokens", "completion_tokens")
        rows = zip(*(done.columns[name].to_pylist() for name in columns), strict=True)
        given = dict(zip(cases, rows, strict=True))
        reasons = {list(cases)[row]: str(error) for row, error in done.failed.items()}
        assert reasons.keys() == {name for name, case in cases.items() if case.reason}
        for name, case in cases.items():
            if case.reason:
                assert case.reason in reasons[name]
                assert len(reasons[name].encode()) < 900
                assert "10 prompt tokens and 5 completion tokens" in reasons[name], "what a failed answer took"
            else:
                several = [None] * 3 if group == "three texts" else None
                assert given[name] == (case.text, case.reasoning or several, *case.tokens), name
        assert server.requests() == dict.fromkeys(cases, 1)
        if "fewer than asked" in cases:
            assert isinstance(done.failed[list(cases).index("fewer than asked")], InvalidValues), "the endpoint's fault"


@ENDPOINTS.promise("a row that the server refuses alone is asked once and named in the server's words; others go on")
def test_refused_rows(leaf: Adapter, server: ChatServer) -> None:
    refused = {name: reply for name, reply in REFUSED_ROWS.items() if leaf.is_chat or name != "a choice with an error"}
    server.always = dict(refused)
    texts = [*GOOD, *refused, "good 4"]
    done = ask(leaf, server, texts)
    assert {texts[row] for row in done.failed} == refused.keys()
    for row, error in done.failed.items():
        assert isinstance(error, RowError)
        assert (words_of(REFUSED_ROWS[texts[row]]) or WORDS[texts[row]])[:200] in str(error)
    requests = server.requests()
    assert requests.pop("Hi", 0) <= len(refused)
    assert requests == dict.fromkeys(texts, 1)


@ENDPOINTS.promise("a fault that can pass by itself costs a try and no row; the server's time to wait is kept to")
def test_passing_faults(leaf: Adapter, server: ChatServer) -> None:
    server.faults = {name: [reply] for name, reply in PASSING.items()}
    done = ask(leaf, server, [*GOOD, *PASSING], timeout_seconds=2)
    assert not done.failed
    assert server.requests() == dict.fromkeys(GOOD, 1) | dict.fromkeys(PASSING, 2)
    for name in (name for name in PASSING if name.startswith("429 with")):
        first, second = [moment for moment, text in server.seen if text == name]
        assert second - first >= 0.19, name


@ENDPOINTS.promise("a fault of one row that does not pass ends after max_tries")
def test_lasting_faults_of_single_rows(leaf: Adapter, server: ChatServer) -> None:
    server.always = {name: reply for name, reply in PASSING.items() if "429" not in name}
    texts = [*GOOD, *server.always]
    done = ask(leaf, server, texts, timeout_seconds=2)
    assert {texts[row] for row in done.failed} == server.always.keys()
    assert all("in 3 tries" in str(error) for error in done.failed.values())
    requests = server.requests()
    assert 1 <= requests.pop("Hi") <= len(texts)
    if leaf.is_chat:
        assert all(body["max_tokens"] == 1 for body in server.bodies if server.asked(body) == ["Hi"])
    assert requests == dict.fromkeys(GOOD, 1) | dict.fromkeys(server.always, 3)


@rows_of(EVERY_REQUEST)
@ENDPOINTS.promise(
    "a refused key, an empty account or a wrong model ends the run at the first answers, with no row blamed"
)
def test_every_request_is_refused(leaf: Adapter, case: Any, server: ChatServer) -> None:
    server.down, kind, words = case
    with pytest.raises(getattr(errors, kind)) as caught:
        ask(leaf, server, GOOD)
    assert words in str(caught.value)
    assert "secret-1" not in str(caught.value)
    requests = server.requests()
    assert all(requests[text] <= 1 for text in GOOD)
    assert requests["Hi"] <= len(GOOD)


@rows_of(AWAY)
@ENDPOINTS.promise("an endpoint that does not come back in time blames no row")
def test_an_endpoint_that_stays_away(leaf: Adapter, case: Any, server: ChatServer) -> None:
    server.down, words = case
    started = time.monotonic()
    with pytest.raises(ServiceUnavailable) as caught:
        ask(leaf, server, GOOD, retry_timeout_seconds=1.5)
    assert words in str(caught.value)
    assert time.monotonic() < started + 15


@pytest.mark.parametrize("fault", [refusal(503, "restarts"), Reply(None), Reply(502, b"<html>")], ids=str)
@ENDPOINTS.promise("an endpoint that is away for a while and comes back costs only waiting")
def test_an_endpoint_that_comes_back(leaf: Adapter, fault: Reply, server: ChatServer) -> None:
    server.faults = {text: [fault] * 4 for text in GOOD} | {"Hi": [fault] * 20}
    assert not ask(leaf, server, GOOD).failed


@ENDPOINTS.promise("of a limit that is not worded, the largest request is told from all others after max_tries")
def test_a_limit_of_one_row_without_numbers(leaf: Adapter, server: ChatServer) -> None:
    long = "long " * 2000
    server.always[long] = refusal(429, "Too many tokens")
    done = ask(leaf, server, [*GOOD, long])
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


@ENDPOINTS.promise("the tokens of new answers are counted for the receipt, and those of the journal are not")
def test_counted(leaf: Adapter, server: ChatServer, tmp_path: Path) -> None:
    def counted(*texts: str) -> dict[str, float]:
        model = leaf.make(server.url, **leaf.reads("{text}"))
        predict: Any = leaf.load(model, server.url, Location(str(tmp_path / "answers")))
        predict(batch_of([*texts]))
        return dict(predict.counters())

    first = counted("a", "b c")
    assert first["prompt_tokens"] > 0
    assert counted("a", "b c") == {}
    assert first["prompt_tokens"] > counted("a", "d")["prompt_tokens"] > 0


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 4}}, (10, 4)),
        ({"cache_read_input_tokens": 3}, (10, 3)),
        ({"prompt_cache_hit_tokens": 0}, (10, 0)),
        ({}, (None, None)),
    ],
)
def test_tokens_of_prompts_that_were_in_a_cache_are_counted(usage: Any, expected: Any, server: ChatServer) -> None:
    answer = json.loads(completion("yes", prompt=10))
    answer["usage"] |= usage
    server.always["a"] = Reply(200, answer)
    predict: Any = ADAPTERS["openai"].make(server.url, user="{text}").load()
    predict(batch_of(["a"]))
    counters = predict.counters()
    assert (counters.get("prefix_tokens"), counters.get("cached_tokens")) == expected
    assert counters["generated_tokens"] == 1
