"""Several endpoints: which one answers, which keys they get, and what each is asked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from overnight.tasks.errors import AccessDenied, JobError, ServiceUnavailable
from overnight.tasks.infer.endpoint import client, fallback
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.storage.location import Location
from tests.contracts.endpoints.suite import batch_of
from tests.tasks.infer.chat_server import ChatServer, chat_server, completion, refusal

AWAY = refusal(503, "the server restarts")


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ChatServer]]:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.05)
    with chat_server() as first, chat_server() as second:
        first.always = {text: completion("first") for text in "abc"}
        second.always = {text: completion("second") for text in "abc"}
        yield [first, second]


def model_of(servers: list[ChatServer], **settings: Any) -> OpenAI:
    usual = {"user": "{text}", "model": "small", "max_tries": 3, "base_url": [server.url for server in servers]}
    return OpenAI(**usual | settings)  # type: ignore[arg-type]


def texts_of(servers: list[ChatServer], texts: str = "abc", journal: Location | None = None, **settings: Any) -> Any:
    done: Any = model_of(servers, **settings).load_with(journal)(batch_of(list(texts)))
    return done.columns["generated_text"].to_pylist()


def test_the_first_endpoint_answers_while_it_works(servers: list[ChatServer]) -> None:
    assert texts_of(servers) == ["first"] * 3
    assert not servers[1].seen


@pytest.mark.parametrize(
    "fault", [AWAY, refusal(401, "wrong key"), refusal(429, "slow down"), refusal(402, "no credit")]
)
def test_the_next_one_answers_for_an_endpoint_that_is_away_or_refuses_its_key(
    servers: list[ChatServer], fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    servers[0].always, servers[0].down = {}, fault
    assert texts_of(servers) == ["second"] * 3
    [line] = [record.getMessage() for record in caplog.records if "the requests go to" in record.getMessage()]
    assert line.startswith(f"{servers[0].url}: the requests go to {servers[1].url}: ")


def test_a_fault_of_a_row_is_not_asked_elsewhere(servers: list[ChatServer]) -> None:
    servers[0].always["b"] = refusal(400, "the prompt is odd")
    servers[0].always["c"] = refusal(500, "always for this row")
    assert texts_of(servers) == ["first", None, None]
    assert not servers[1].seen


def test_a_wrong_model_ends_the_run(servers: list[ChatServer]) -> None:
    servers[0].always, servers[0].down = {}, refusal(404, "no such model", code="model_not_found")
    with pytest.raises(JobError, match="no such model"):
        texts_of(servers)


def test_an_endpoint_that_came_back_answers_again_after_its_rest(
    servers: list[ChatServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, servers[0].always, servers[0].down = servers[0].always, {}, AWAY
    predict: Any = model_of(servers).load()
    assert predict(batch_of(["a"])).columns["generated_text"].to_pylist() == ["second"]
    servers[0].always, servers[0].down = answers, None
    asked = len(servers[0].seen)
    assert predict(batch_of(["b"])).columns["generated_text"].to_pylist() == ["second"]
    assert len(servers[0].seen) == asked, "it rests"
    monkeypatch.setattr(fallback.time, "monotonic", lambda now=fallback.time.monotonic: now() + 301)
    assert predict(batch_of(["c"])).columns["generated_text"].to_pylist() == ["first"]


def test_if_none_works_the_error_is_that_of_the_last_one_within_the_time_of_a_row(servers: list[ChatServer]) -> None:
    for server in servers:
        server.always, server.down = {}, AWAY
    with pytest.raises(ServiceUnavailable, match=servers[1].url):
        texts_of(servers, retry_timeout_seconds=2)
    servers[1].down = refusal(401, "wrong key")
    with pytest.raises(AccessDenied, match="does not accept the key"):
        texts_of(servers, retry_timeout_seconds=2)


def test_each_endpoint_gets_its_own_key_and_an_answer_is_paid_once(
    servers: list[ChatServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FIRST_KEY", "sk-first")
    monkeypatch.setenv("SECOND_KEY", "sk-second")
    servers[0].always, servers[0].down = {}, AWAY
    servers[1].key = "sk-second"
    keys = ["FIRST_KEY", "SECOND_KEY"]
    for _ in range(2):
        assert texts_of(servers, "ab", Location(str(tmp_path)), api_key_env=keys) == ["second"] * 2
    assert {headers["Authorization"] for headers in servers[0].headers} == {"Bearer sk-first"}
    assert {headers["Authorization"] for headers in servers[1].headers} == {"Bearer sk-second"}
    assert servers[1].requests() == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": []},
        {"base_url": ["http://a/v1", "http://a/v1"]},
        {"base_url": ["http://a/v1", "http://me:secret@b/v1"]},
        {"base_url": ["http://a/v1", "http://b/v1"], "api_key_env": "A"},
        {"base_url": ["http://a/v1", "http://b/v1"], "api_key_env": ["A"]},
        {"base_url": ["http://a/v1"], "api_key_env": ["sk-123"]},
    ],
)
def test_urls_and_keys_that_do_not_fit_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenAI(model="m", user="{text}", **settings)
