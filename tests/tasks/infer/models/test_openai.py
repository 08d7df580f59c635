"""Against a real HTTP server: what is asked, what is tried again, whose fault a failure is, and what a kill repeats."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import AccessDenied, JobError, ServiceUnavailable
from overnight.tasks.infer.chat import openai_client
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.storage.location import Location
from tests.tasks.infer.chat_server import MOOD, ChatServer, chat_server, completion

LIMITED = (429, "Rate limit reached", {"Retry-After": "0.5"})
FAILED = (500, "The server had an error", {})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.1)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as state:
        yield state


def predictor(server: ChatServer, **settings: Any) -> OpenAI:
    settings = {"user": "{text}", "system": "be {tone}", "model": "small", "max_tries": 3} | settings
    return OpenAI(base_url=server.url, **settings)


def batch_of(texts: list[str]) -> dict[str, Any]:
    count = len(texts)
    columns = {"text": texts, "tone": ["kind"] * count, "row_id": [f"r{i}" for i in range(count)]}
    return {name: np.array(values, object) for name, values in columns.items()}


def run(server: ChatServer, texts: list[str], journal: Location | None = None, **settings: Any) -> Any:
    return predictor(server, **settings).load_with(journal)(batch_of(texts))


def texts_of(outcome: Any) -> list[Any]:
    return outcome.columns["generated_text"].to_pylist()


def expected(text: str) -> str:
    return f"be kind|{text}"[::-1]


def test_each_row_is_asked_once_with_its_messages_and_settings(server: ChatServer) -> None:
    texts = [f"text {i}" for i in range(50)]
    extra = {"top_k": 5, "seed": None}
    found = run(server, texts, temperature=0.5, max_new_tokens=9, top_p=0.9, extra_body=extra)
    assert texts_of(found) == [expected(text) for text in texts]
    assert not found.failed
    assert found.columns["prompt_tokens"].to_pylist() == [7] * 50
    assert found.columns["finish_reason"].to_pylist() == ["stop"] * 50
    body = next(body for body in server.bodies if body["messages"][1]["content"] == "text 3")
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "text 3"}]
    assert body == {
        "model": "small", "messages": messages, "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 5,
    }  # fmt: skip
    assert len(server.seen) == 50


def test_many_requests_are_under_way_at_once_and_no_more_than_asked_for(server: ChatServer) -> None:
    server.seconds = 0.1
    model = predictor(server, max_concurrent_requests=10, batch_size=4)
    predict = model.load()
    with ThreadPoolExecutor(model.calls_at_once()) as calls:
        for found in calls.map(predict, [batch_of([f"{i} {j}" for j in range(4)]) for i in range(10)]):
            assert not found.failed
    assert server.most_at_once == 10


def test_the_schema_goes_with_the_request_and_the_answer_is_parsed(server: ChatServer) -> None:
    server.always["odd"] = completion('{"mood": "odd"}')
    server.always["cut"] = completion('{"mood": "go', reason="length")
    found = run(server, ["a", "bb", "odd", "cut"], output_schema=MOOD)
    assert found.columns["structured_output"].to_pylist()[:2] == [{"mood": "good"}, {"mood": "bad"}]
    assert server.bodies[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": MOOD},
    }
    assert "mood: 'odd' is not one of ['good', 'bad']" in str(found.failed[2])
    assert "It ends at max_new_tokens." in str(found.failed[3])
    assert all(str(error).endswith("7 prompt tokens and 2 completion tokens.") for error in found.failed.values())
    assert len(server.seen) == 4


def test_ten_broken_answers_cost_their_rows_alone_and_say_why(server: ChatServer) -> None:
    broken = {
        "html": (b"<html>Bad gateway</html>", r"expected a chat completion, found '<html>"),
        "empty": (b"", "expected a chat completion, found ''"),
        "no choices": (b'{"choices": []}', "expected a chat completion, found"),
        "a list": (b"[1, 2]", "expected a chat completion, found"),
        "null": (completion(None, reason="content_filter"), "found none: finish_reason content_filter"),
        "refusal": (completion(None, {"refusal": "I will not"}), "found none: I will not"),
        "counts": (completion("x", prompt="many"), r"expected numbers of tokens, found \['many', 1\]"),  # type: ignore[arg-type]
        "too long": ((400, "maximum context length is 8 tokens", {}), "HTTP 400: maximum context length is 8 tokens"),
        "poison": (FAILED, "HTTP 500: The server had an error, in 3 tries; other requests succeed"),
        "dropped": ("drop", "RemoteProtocolError: .*, in 3 tries; other requests succeed"),
        "cut": ("cut", "RemoteProtocolError: .*, in 3 tries; other requests succeed"),
        "hangs": ("hang", "no answer within 0.5 s, in 3 tries; other requests succeed"),
    }
    server.always = {name: fault for name, (fault, _) in broken.items()}
    good = [f"good {i}" for i in range(20)]
    texts = [*good[:10], *broken, *good[10:]]
    found = run(server, texts, timeout_seconds=0.5)
    assert {texts[row] for row in found.failed} == broken.keys()
    for row, error in found.failed.items():
        with pytest.raises(type(error), match=broken[texts[row]][1]):
            raise error
    assert [text for text in texts_of(found) if text] == [expected(text) for text in good]
    tries = Counter(text for _, text in server.seen)
    assert all(tries[text] == 1 for text in [*good, "too long", "null", "refusal"])
    assert tries["poison"] == tries["hangs"] == tries["html"] == 3


def test_a_row_that_fails_alone_is_blamed_where_the_service_answers_something_else(server: ChatServer) -> None:
    server.always["poison"] = FAILED
    found = run(server, ["poison"])
    assert found.failed.keys() == {0}
    assert [text for _, text in server.seen].count("Hi") == 2
    assert server.bodies[-1]["max_tokens"] == 1


def test_errors_that_pass_cost_no_row(server: ChatServer) -> None:
    server.faults = {"a": [FAILED, "drop"], "b": [(503, "overloaded", {}), "cut"], "c": [b"<html>"], "d": [LIMITED]}
    found = run(server, ["a", "b", "c", "d", "e"])
    assert texts_of(found) == [expected(text) for text in "abcde"]


def test_after_too_many_requests_all_wait_as_long_as_the_server_says(server: ChatServer) -> None:
    server.faults["first"] = [LIMITED]
    model = predictor(server, max_concurrent_requests=1)
    found = model.load()(batch_of(["first", "second"]))
    assert not found.failed
    moments = [moment for moment, _ in server.seen]
    assert moments[1] - moments[0] >= 0.49
    assert len(moments) == 3


@pytest.mark.parametrize("fault", [FAILED, "drop", (429, "slow down", {})])
def test_a_service_that_is_down_blames_no_row(server: ChatServer, fault: Any) -> None:
    server.down = fault
    with pytest.raises(ServiceUnavailable, match=r"no request succeeded in .* tries and .* run again to resume"):
        run(server, ["a", "b", "c"], retry_timeout_seconds=1)


def test_a_service_that_comes_back_costs_only_waiting(server: ChatServer) -> None:
    server.faults = {text: [FAILED] * 2 for text in "abc"} | {"Hi": [FAILED] * 3}
    found = run(server, ["a", "b", "c"], retry_timeout_seconds=30, max_tries=2)
    assert texts_of(found) == [expected(text) for text in "abc"]


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ((403, "no", {}), AccessDenied, "HTTP 403: the server does not allow this"),
        ((429, "insufficient_quota", {}), AccessDenied, "HTTP 429: insufficient_quota"),
        ((404, "model small does not exist", {}), JobError, "no such path or model.*model small does not exist"),
        ((301, "moved", {"Location": "http://127.0.0.1:9"}), JobError, "HTTP 301"),
    ],
)
def test_what_no_row_can_help_ends_the_run_at_once(server: ChatServer, fault: Any, kind: Any, message: str) -> None:
    server.down = fault
    with pytest.raises(kind, match=message):
        run(server, ["a", "b"])


def test_the_key_comes_from_the_environment_and_is_told_to_nobody_else(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.key = "sk-secret-123"
    model = predictor(server, api_key_env="SOME_KEY")
    with pytest.raises(JobError, match="the environment variable SOME_KEY is not set where the workers run"):
        model.load()
    monkeypatch.setenv("SOME_KEY", "sk-\u00e4")
    with pytest.raises(JobError, match="SOME_KEY is not a valid key"):
        model.load()
    monkeypatch.setenv("SOME_KEY", "sk-secret-123\n")
    caplog.set_level(0)
    journal = Location(str(tmp_path / "answers"))
    server.always["echo"] = (400, "what is sk-secret-123?", {})
    found = model.load_with(journal)(batch_of(["a", "echo"]))
    assert texts_of(found)[0] == expected("a")
    assert "what is ***?" in str(found.failed[1])
    monkeypatch.setenv("SOME_KEY", "sk-wrong-456")
    with pytest.raises(AccessDenied, match="HTTP 401: the server does not accept the key") as caught:
        model.load()(batch_of(["a"]))
    kept = "".join(file.read_text() for file in (tmp_path / "answers").iterdir())
    assert "sk-" not in kept + caplog.text + str(caught.value) + model.model_dump_json()


@pytest.mark.parametrize(
    "settings", [{"base_url": "https://me:secret@host/v1"}, {"base_url": "ftp://host"}, {"api_key_env": "sk-123"}]
)
def test_settings_that_hold_a_secret_or_no_url_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenAI(model="small", user="{text}", **settings)


def test_a_url_from_a_variable_is_looked_at_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_URL", "localhost:80/secret")
    with pytest.raises(JobError, match="base_url: expected http:// or https:// and a host, found another form"):
        OpenAI(model="small", user="{text}", base_url="${SOME_URL}").load()


def test_requests_a_minute_are_kept_to(server: ChatServer) -> None:
    run(server, [f"{i}" for i in range(8)], requests_per_minute=300)
    moments = sorted(moment for moment, _ in server.seen)
    assert moments[-1] - moments[0] >= 7 * 0.2 - 0.4


def test_limits_are_of_the_run_and_shared_by_its_workers(server: ChatServer) -> None:
    run(server, ["0", "1", "2", "3", "4"], requests_per_minute=600, workers=(1, 2))
    moments = sorted(moment for moment, _ in server.seen)
    assert moments[-1] - moments[0] >= 4 * 0.2 - 0.3


def test_tokens_a_minute_are_kept_to_as_answers_tell_them(server: ChatServer) -> None:
    """8 tokens an answer (7 and 1); 4800 a minute are 10 answers a second, once guesses are put right."""
    texts = [f"{i}" for i in range(11)]
    run(server, texts, tokens_per_minute=4800, max_new_tokens=1, max_concurrent_requests=1, system=None)
    moments = sorted(moment for moment, _ in server.seen)
    assert 10 * 0.1 - 0.3 <= moments[-1] - moments[0] <= 10 * 0.1 + 1


def test_waiting_for_its_turn_takes_nothing_of_a_rows_patience(server: ChatServer) -> None:
    server.faults["9"] = [FAILED]
    found = run(server, [f"{i}" for i in range(10)], requests_per_minute=300, retry_timeout_seconds=1)
    assert not found.failed


@pytest.mark.parametrize("after", ["nan", "soon", "-3", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_retry_after_that_says_nothing_is_no_reason_to_wait(server: ChatServer, after: str) -> None:
    server.faults["a"] = [(429, "slow down", {"Retry-After": after})]
    assert texts_of(run(server, ["a"])) == [expected("a")]


def test_a_retry_after_beyond_the_patience_is_not_slept_through(server: ChatServer) -> None:
    server.down = (429, "come back tomorrow", {"Retry-After": "86400"})
    started = time.monotonic()
    with pytest.raises(ServiceUnavailable, match=r"come back tomorrow.* Set requests_per_minute"):
        run(server, ["a"])
    assert time.monotonic() < started + 10


def test_each_row_has_its_cost(server: ChatServer) -> None:
    prices = {"price_per_million_input_tokens": 2.0, "price_per_million_output_tokens": 10.0}
    server.always["bad"] = (400, "no", {})
    costs = run(server, ["a", "bad"], **prices).columns["cost"].to_pylist()
    assert costs[0] == pytest.approx((7 * 2 + 2 * 10) / 1e6)
    assert costs[1] is None
    assert "cost" not in run(server, ["a"]).columns


def test_an_answer_that_was_paid_for_is_not_asked_for_again(server: ChatServer, tmp_path: Path) -> None:
    journal, texts = Location(str(tmp_path / "answers")), [f"{i}" for i in range(40)]
    first = run(server, texts, journal)
    assert texts_of(run(server, texts, journal)) == texts_of(first)
    assert len(server.seen) == 40
    run(server, texts[::-1], journal)  # other rows, with the same texts
    assert len(server.seen) == 80


def test_answers_are_kept_on_an_object_store_too(s3: Any, server: ChatServer) -> None:
    s3.create_bucket(Bucket="answers")
    journal, texts = Location("s3://answers/run"), [f"{i}" for i in range(8)]
    run(server, texts, journal)
    run(server, texts, journal)
    assert len(server.seen) == 8
    server.down = FAILED
    with pytest.raises(ServiceUnavailable):
        run(server, [*texts, "other"], journal, retry_timeout_seconds=1)
    assert [text for _, text in server.seen].count("other") >= 1
    assert len({text for _, text in server.seen[8:]} - {"other", "Hi"}) == 0


KILLED = """
import sys
from overnight.tasks.storage.location import Location
from tests.tasks.infer.models.test_openai import batch_of
from overnight.tasks.infer.chat import openai_client as endpoint
from overnight.tasks.infer.models.openai import OpenAI

model = OpenAI(model="small", user="{text}", system="be {tone}", base_url=sys.argv[1], max_concurrent_requests=4)
found = model.load_with(Location(sys.argv[2]))(batch_of([str(i) for i in range(200)]))
print(*found.columns["generated_text"].to_pylist(), sep=";")
"""


def test_a_process_that_is_killed_half_way_repeats_only_what_was_under_way(server: ChatServer, tmp_path: Path) -> None:
    server.seconds = 0.02
    command = [sys.executable, "-c", KILLED, server.url, str(tmp_path / "answers")]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(command, env=environment) as process:
        while len(server.answered) < 100:
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    with next((tmp_path / "answers").iterdir()).open("ab") as file:
        file.write(b'{"key": "cut o')
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert again.stdout.strip().split(";") == [expected(str(i)) for i in range(200)]
    asked = Counter(text for _, text in server.seen)
    assert asked.keys() == {str(i) for i in range(200)}
    assert sum(count - 1 for count in asked.values()) <= 4
    assert json.dumps(sorted(set(asked.values()))) in ("[1]", "[1, 2]")


def test_a_key_in_the_query_is_sent_and_never_told(
    server: ChatServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY", f"{server.url}?key=canary-1")
    for base_url in ("${GATEWAY}", f"{server.url}/?key=canary-1"):
        server.down = None
        model = OpenAI(model="small", user="{text}", base_url=base_url, retry_timeout_seconds=0.2)
        assert not model.load()(batch_of(["a"])).failed
        for fault in ((500, "your key canary-1 is odd", {}), (404, "canary-1", {}), (403, "canary-1", {})):
            server.down = fault
            with caplog.at_level("INFO"), pytest.raises((JobError, ServiceUnavailable, AccessDenied)) as caught:
                model.load()(batch_of(["b"]))
            assert "key=***" in str(caught.value)
            assert "canary" not in str(caught.value)
    assert "canary" not in caplog.text


def test_several_texts_come_with_one_request_and_are_kept_for_a_restart(server: ChatServer, tmp_path: Path) -> None:
    answer = json.loads(completion("one two"))
    answer["choices"] += json.loads(completion("three", reason="length"))["choices"]
    server.always = {"both": json.dumps(answer).encode(), "short": completion("one")}
    settings = {"num_return_sequences": 2, "temperature": 1, "max_tries": 2}
    for _ in range(2):
        found = run(server, ["both", "short"], Location(str(tmp_path)), **settings)
        assert texts_of(found) == [["one two", "three"], None]
        assert found.columns["finish_reason"].to_pylist()[0] == ["stop", "length"]
        assert found.columns["completion_tokens"].to_pylist() == [2, None]
        assert "expected a chat completion with 2 choices, found" in str(found.failed[1])
    assert [body["n"] for body in server.bodies if body["messages"][-1]["content"] == "both"] == [2]
    assert "n" not in predictor(server).body([])
    with pytest.raises(ValidationError, match="n and num_return_sequences are the same"):
        predictor(server, extra_body={"n": 2}, **settings)
