"""What is asked, how fast, with which key, and what a kill repeats; faults and answers: tests/contracts/endpoints."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import AccessDenied, JobError, ServiceUnavailable
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.storage.location import Location
from tests.contracts.endpoints.suite import batch_of
from tests.tasks.infer.chat_server import MOOD, ChatServer, completion, refusal

FAILED = refusal(500, "The server had an error")


def predictor(server: ChatServer, **settings: Any) -> OpenAI:
    return OpenAI(**{"base_url": server.url, "user": "{text}", "model": "small", "max_tries": 3} | settings)


def run(server: ChatServer, texts: list[str], journal: Location | None = None, **settings: Any) -> Any:
    return predictor(server, **settings).load_with(journal)(batch_of(texts))


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def test_choices_are_sent_as_a_strict_schema_and_other_forms_are_only_checked(server: ChatServer) -> None:
    sent = predictor(server, answer={"choices": ["a", "b"]}).body([])["response_format"]["json_schema"]
    assert sent["strict"] is True
    assert sent["schema"] == {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["a", "b"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    plain = predictor(server).body([])
    assert predictor(server, answer={"regex": "a|b"}).body([]) == plain
    own = {"response_format": None, "structured_outputs": {"choice": ["a", "b"]}}
    body = predictor(server, answer={"choices": ["a", "b"]}, extra_body=own).body([])
    assert body == {**plain, "structured_outputs": {"choice": ["a", "b"]}}


def seconds_of(server: ChatServer) -> float:
    """The time between the first request and the last."""
    moments = sorted(moment for moment, _ in server.seen)
    return moments[-1] - moments[0]


def test_each_row_is_asked_once_with_its_messages_and_settings(server: ChatServer) -> None:
    texts, extra = [f"text {i}" for i in range(50)], {"top_k": 5, "seed": None}
    drawing = {"temperature": 0.5, "max_new_tokens": 9, "top_p": 0.9, "extra_body": extra}
    found = run(server, texts, system="be {row_id}", **drawing)
    assert found.columns["generated_text"].to_pylist() == [f"be r{row}|{text}"[::-1] for row, text in enumerate(texts)]
    assert set(found.columns["finish_reason"].to_pylist()) == {"stop"}
    messages = [{"role": "system", "content": "be r3"}, {"role": "user", "content": "text 3"}]
    request = {"model": "small", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "messages": messages}
    assert server.bodies.count(request) == 1
    assert len(server.seen) == 50


def test_many_requests_are_under_way_at_once_and_no_more_than_asked_for(server: ChatServer) -> None:
    server.seconds = 0.1
    model = predictor(server, max_concurrent_requests=10, batch_size=4)
    predict = model.load()
    with ThreadPoolExecutor(model.calls_at_once()) as calls:
        list(calls.map(predict, [batch_of([f"{i} {j}" for j in range(4)]) for i in range(10)]))
    assert server.most_at_once == 10


def test_the_schema_goes_with_the_request_and_the_answer_is_parsed(server: ChatServer) -> None:
    server.always = {"odd": completion('{"mood": "odd"}'), "cut": completion('{"mood": "go', reason="length")}
    found = run(server, ["a", "bb", "odd", "cut"], output_schema=MOOD)
    assert found.columns["structured_output"].to_pylist()[:2] == [{"mood": "good"}, {"mood": "bad"}]
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": MOOD}}
    assert server.bodies[0]["response_format"] == schema
    assert "mood: 'odd' is not one of ['good', 'bad']" in str(found.failed[2])
    assert "It ends at max_new_tokens." in str(found.failed[3])
    assert all(str(error).endswith("7 prompt tokens and 2 completion tokens.") for error in found.failed.values())
    assert len(server.seen) == 4


def test_the_key_comes_from_the_environment_and_is_shown_nowhere_else(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.key = "sk-secret-123"
    model = predictor(server, api_key_env="SOME_KEY")
    with pytest.raises(JobError, match="SOME_KEY is not set where the workers run"):
        model.load()
    monkeypatch.setenv("SOME_KEY", "sk-\u00e4")
    with pytest.raises(JobError, match="SOME_KEY is not a valid key"):
        model.load()
    monkeypatch.setenv("SOME_KEY", "sk-secret-123\n")
    caplog.set_level(0)
    server.always["echo"] = refusal(400, "what is sk-secret-123?")
    found: Any = model.load_with(Location(str(tmp_path / "answers")))(batch_of(["a", "echo"]))
    assert "what is ***?" in str(found.failed[1])
    monkeypatch.setenv("SOME_KEY", "sk-wrong-456")
    with pytest.raises(AccessDenied, match="the server does not accept the key") as caught:
        model.load()(batch_of(["a"]))
    kept = "".join(file.read_text() for file in (tmp_path / "answers").iterdir())
    assert "sk-" not in kept + caplog.text + str(caught.value) + model.model_dump_json()


def test_a_key_in_the_query_is_sent_and_never_shown(
    server: ChatServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv("GATEWAY", f"{server.url}?key=canary-1")
    for base_url in ("${GATEWAY}", f"{server.url}/?key=canary-1"):
        server.down = None
        model = predictor(server, base_url=base_url, retry_timeout_seconds=0.2)
        assert not model.load()(batch_of(["a"])).failed
        for fault in (refusal(500, "your key canary-1 is odd"), refusal(404, "canary-1"), refusal(403, "canary-1")):
            server.down = fault
            with pytest.raises((JobError, ServiceUnavailable, AccessDenied), match=r"key=\*\*\*") as caught:
                model.load()(batch_of(["b"]))
            assert "canary" not in str(caught.value) + caplog.text


def test_a_url_from_a_variable_is_checked_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_URL", "localhost:80/secret")
    with pytest.raises(JobError, match="base_url: expected http:// or https://"):
        OpenAI(model="small", user="{text}", base_url="${SOME_URL}").load()


@pytest.mark.parametrize(("limit", "settings"), [(300, {}), (600, {"workers": (1, 2)})])
def test_requests_a_minute_are_kept_to_by_all_workers_together(
    server: ChatServer, limit: int, settings: dict[str, Any]
) -> None:
    """To wait for its turn does not count against the time of a row's tries."""
    server.faults["7"] = [FAILED]
    found = run(server, numbers(8), requests_per_minute=limit, retry_timeout_seconds=1, **settings)
    assert not found.failed
    assert seconds_of(server) >= 8 * 0.2 - 0.4


def test_tokens_a_minute_are_kept_to_as_answers_count_them(server: ChatServer) -> None:
    """8 tokens an answer (7 and 1); 4800 a minute are 10 answers a second, once guesses are put right."""
    run(server, numbers(11), tokens_per_minute=4800, max_new_tokens=1, max_concurrent_requests=1)
    assert 10 * 0.1 - 0.3 <= seconds_of(server) <= 10 * 0.1 + 1


def test_each_row_has_its_cost(server: ChatServer) -> None:
    prices = {"price_per_million_input_tokens": 2.0, "price_per_million_output_tokens": 10.0}
    server.always["bad"] = refusal(400, "no")
    costs = run(server, ["a", "bad"], **prices).columns["cost"].to_pylist()
    assert costs[0] == pytest.approx((7 * 2 + 1 * 10) / 1e6)
    assert costs[1] is None
    assert "cost" not in run(server, ["a"]).columns
    free = dict.fromkeys(prices, 0)
    assert run(server, ["a"], **free).columns["cost"].to_pylist() == [0]


def test_answers_are_kept_on_an_object_store_too(s3: Any, server: ChatServer) -> None:
    s3.create_bucket(Bucket="answers")
    journal, texts = Location("s3://answers/run"), numbers(8)
    run(server, texts, journal)
    run(server, texts, journal)
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
from overnight.tasks.infer.models.openai import OpenAI
from tests.contracts.endpoints.suite import batch_of

model = OpenAI(model="small", user="{text}", base_url=sys.argv[1], max_concurrent_requests=4)
found = model.load_with(Location(sys.argv[2]))(batch_of([str(number) for number in range(200)]))
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
    assert again.stdout.strip().split(";") == [f"{text}|{text}"[::-1] for text in numbers(200)]
    asked = server.requests()
    assert asked.keys() == set(numbers(200))
    assert sum(count - 1 for count in asked.values()) <= 4
    assert max(asked.values()) <= 2


def test_cached_tokens_of_a_prompt_have_their_own_price(server: ChatServer) -> None:
    answer = json.loads(completion("yes", prompt=1000))
    answer["usage"]["prompt_tokens_details"] = {"cached_tokens": 900}
    server.always = {"cached": json.dumps(answer).encode()}
    prices = {"price_per_million_input_tokens": 2.0, "price_per_million_output_tokens": 10.0}
    expected = [1000 * 2e-6 + 10e-6, 7 * 2e-6 + 10e-6]
    assert run(server, ["cached", "new"], **prices).columns["cost"].to_pylist() == pytest.approx(expected)
    expected[0] = 100 * 2e-6 + 900 * 0.5e-6 + 10e-6
    prices["price_per_million_cached_tokens"] = 0.5
    assert run(server, ["cached", "new"], **prices).columns["cost"].to_pylist() == pytest.approx(expected)
