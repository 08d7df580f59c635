"""What is asked, how fast, with which key, and what a kill repeats; faults and answers: tests/contracts/endpoints."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overnight.tasks.errors import AccessDenied, JobError, ServiceUnavailable
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.storage.location import Location
from tests.tasks.infer.chat_server import MOOD, ChatServer, completion

FAILED = (500, "The server had an error", {})


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
    with pytest.raises(AccessDenied) as caught:
        model.load()(batch_of(["a"]))
    assert "the server does not accept the key" in str(caught.value)
    kept = "".join(file.read_text() for file in (tmp_path / "answers").iterdir())
    assert "sk-" not in kept + caplog.text + str(caught.value) + model.model_dump_json()


def test_a_url_from_a_variable_is_looked_at_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_URL", "localhost:80/secret")
    with pytest.raises(JobError, match="base_url: expected http:// or https:// and a host, found another form"):
        OpenAI(model="small", user="{text}", base_url="${SOME_URL}").load()


@pytest.mark.parametrize(("limit", "settings"), [(300, {}), (600, {"workers": (1, 2)})])
def test_requests_a_minute_are_kept_to_by_all_workers_together(
    server: ChatServer, limit: int, settings: dict[str, Any]
) -> None:
    run(server, [f"{i}" for i in range(8)], requests_per_minute=limit, **settings)
    moments = sorted(moment for moment, _ in server.seen)
    assert moments[-1] - moments[0] >= 7 * 0.2 - 0.4


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


def test_each_row_has_its_cost(server: ChatServer) -> None:
    prices = {"price_per_million_input_tokens": 2.0, "price_per_million_output_tokens": 10.0}
    server.always["bad"] = (400, "no", {})
    costs = run(server, ["a", "bad"], **prices).columns["cost"].to_pylist()
    assert costs[0] == pytest.approx((7 * 2 + 2 * 10) / 1e6)
    assert costs[1] is None
    assert "cost" not in run(server, ["a"]).columns


def test_answers_are_kept_on_an_object_store_too(s3: Any, server: ChatServer) -> None:
    s3.create_bucket(Bucket="answers")
    journal, texts = Location("s3://answers/run"), [f"{i}" for i in range(8)]
    run(server, texts, journal)
    run(server, texts, journal)
    assert len(server.seen) == 8
    server.down = FAILED
    with pytest.raises(ServiceUnavailable):
        run(server, [*texts, "other"], journal, retry_timeout_seconds=1)
    assert server.requests().keys() == {*texts, "other", "Hi"}
    assert all(server.requests()[text] == 1 for text in texts)
    server.down = None
    run(server, texts[::-1], journal)  # other rows, with the same texts
    assert all(server.requests()[text] == 2 for text in texts)


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
    asked = server.requests()
    assert asked.keys() == {str(i) for i in range(200)}
    assert sum(count - 1 for count in asked.values()) <= 4
    assert max(asked.values()) <= 2


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
