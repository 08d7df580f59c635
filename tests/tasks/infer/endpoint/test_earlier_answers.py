"""Which requests a model sends if earlier runs have kept their answers, with a real server and a publish's files."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.chat_completions import ChatCompletions
from overnight.tasks.infer.models.endpoint_embedding import EndpointEmbedding
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.models.rerank import Rerank
from overnight.tasks.write.publish.reused import keep_answers, reused_answers
from tests.contracts.endpoints.suite import batch_of
from tests.tasks.infer.chat_server import MOOD, ChatServer, completion, server_of
from tests.tasks.infer.retrieval_server import RetrievalServer
from tests.tasks.runs import make_run

TEXTS = [f"text {number}" for number in range(20)]
PRICES = {"price_per_million_input_tokens": 2.0, "price_per_million_output_tokens": 10.0}


class Runs:
    """Runs of one job, one after another, each of which publishes."""

    def __init__(self, server: ChatServer, folder: Path) -> None:
        self.server, self.folder, self.count = server, folder, 0
        self.reuse = {"path": str(folder / "answers")}

    def run(self, *calls: list[str], **settings: Any) -> tuple[list[str], dict[str, Any]]:
        """Call the model with these texts. Return those for which the server was asked, and what was reused."""
        self.count += 1
        run = make_run(self.folder, generation=f"generation-{self.count}")
        first = {"model": "small", "user": "{text}", "base_url": self.server.url, "reuse": self.reuse, "max_tries": 2}
        model = OpenAI(**first | settings)
        before = len(self.server.seen)
        predict: Any = model.load_with(run.answers / "openai")
        for texts in calls:
            self.outcome = predict(batch_of(texts))
        job = {"inference": [model.model_dump(mode="json", exclude_none=True)]}
        reused = reused_answers(run, job)
        keep_answers(run, {"finished_at": f"2999-01-02T00:00:{self.count:02}.000Z", "settings": job})
        return [text for _, text in self.server.seen[before:]], reused["openai"]


@pytest.fixture
def runs(server: ChatServer, tmp_path: Path) -> Runs:
    return Runs(server, tmp_path)


def test_a_second_run_pays_for_nothing_and_a_third_only_for_the_rows_that_changed(runs: Runs) -> None:
    asked, reused = runs.run(TEXTS, **PRICES)
    assert (sorted(asked), reused["answers"]) == (sorted(TEXTS), 0)
    texts = runs.outcome.columns["generated_text"]
    asked, reused = runs.run(TEXTS, TEXTS, **PRICES)  # as in a trial, and then in the stream
    assert asked == []
    words = sum(len(text.split()) for text in texts.to_pylist())
    assert reused == {
        "answers": 20,
        "prompt_tokens": 140,
        "completion_tokens": words,
        "cost": pytest.approx((140 * 2.0 + words * 10.0) / 1e6),
    }
    assert runs.outcome.columns["generated_text"] == texts
    changed = [*TEXTS[:15], *(f"{text}," for text in TEXTS[15:])]
    asked, reused = runs.run(changed)
    assert (sorted(asked), reused["answers"]) == (sorted(changed[15:]), 15)
    assert "cost" not in reused


def test_another_row_with_the_same_request_gets_the_answer_at_temperature_0_alone(runs: Runs) -> None:
    runs.run(TEXTS)
    assert runs.run(TEXTS[::-1])[0] == []
    assert len(runs.run(TEXTS, temperature=1)[0]) == 20
    assert runs.run(TEXTS, temperature=1)[0] == [], "the same rows"
    assert len(runs.run(TEXTS[::-1], temperature=1)[0]) == 20
    assert len(runs.run(TEXTS, extra_body={"temperature": None})[0]) == 20, "the endpoint's own temperature"
    assert len(runs.run(TEXTS[::-1], extra_body={"temperature": None})[0]) == 20


@pytest.mark.parametrize(
    "setting",
    [{"model": "large"}, {"system": "briefly"}, {"max_new_tokens": 9}, {"seed": 1}, {"extra_body": {"top_k": 3}}],
    ids=lambda setting: next(iter(setting)),
)
def test_a_setting_in_the_request_makes_another_request(runs: Runs, setting: dict[str, Any]) -> None:
    runs.run(TEXTS[:3])
    assert len(runs.run(TEXTS[:3], **setting)[0]) == 3


def test_key_limits_prices_and_the_query_do_not(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-0123456789")
    runs.run(TEXTS[:3], base_url=f"{runs.server.url}?api-version=1")
    others = {"api_key_env": "SOME_KEY", "max_concurrent_requests": 2, "requests_per_minute": 600, **PRICES}
    assert runs.run(TEXTS[:3], **others)[0] == []
    assert "sk-0123456789" not in "".join(str(path.read_bytes()) for path in runs.folder.rglob("*-openai.*"))


def test_answers_that_fail_their_row_or_are_cut_off_are_asked_for_again(runs: Runs) -> None:
    """A refusal, a text that does not fit the schema, an answer that max_new_tokens ended, and a row's own error."""
    fits = completion('{"mood": "good"}')
    refused = completion(None, {"refusal": "no"})
    bad = {"refused": refused, "unfit": completion("words"), "cut": completion('{"mood": "bad"}', reason="length")}
    runs.server.always = {**bad, "odd": (400, "this is too odd", {}), "good": fits}
    rows = ["refused", "unfit", "cut", "odd", "good"]
    assert sorted(runs.run(rows, output_schema=MOOD)[0]) == sorted(rows)
    assert sorted(runs.outcome.failed) == [0, 1, 3]
    asked, reused = runs.run(rows, output_schema=MOOD)
    assert (sorted(asked), reused["answers"]) == (["cut", "odd", "refused", "unfit"], 1)


def test_an_answer_that_fits_no_longer_is_asked_for_again(runs: Runs) -> None:
    """The request is the same, because it does not have the schema."""
    without = {"extra_body": {"response_format": None}}
    runs.run(["a"])
    runs.server.always = {"a": completion('{"mood": "good"}')}
    asked, reused = runs.run(["a"], output_schema=MOOD, **without)
    assert (asked, reused["answers"]) == (["a"], 0)
    assert runs.run(["a"], output_schema=MOOD, **without)[0] == []


def test_the_answer_is_kept_with_the_model_and_fingerprint_that_the_endpoint_names(runs: Runs) -> None:
    payload = json.loads(completion("yes")) | {"model": "small-2026-11-01", "system_fingerprint": "fp_1"}
    runs.server.always = {"a": json.dumps(payload).encode()}
    runs.run(["a"])
    [file] = runs.folder.rglob("*-openai.jsonl.gz")
    [line] = map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
    kept = line["answer"]
    assert (kept["model"], kept["system_fingerprint"], kept["prompt_tokens"]) == ("small-2026-11-01", "fp_1", 7)
    assert line["at"] > 1.7e9


def test_answers_in_a_form_of_another_version_are_asked_for_again(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.run(["a"])
    monkeypatch.setattr(ChatCompletions, "kept", lambda self, fields: Answer(**fields, more=1))
    assert runs.run(["a"])[0] == ["a"]


def test_a_folder_that_cannot_be_written_loses_only_the_saving(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    runs.reuse = {"path": "/proc/answers"}
    assert runs.run(["a"])[0] == ["a"]
    assert "the answers of this run are not kept for later runs, in /proc/answers/job" in caplog.text


def test_on_an_object_store_the_answers_of_the_last_call_are_in_the_log_immediately(
    runs: Runs, s3: Any, tmp_path: Path
) -> None:
    s3.create_bucket(Bucket="reused")
    runs.folder, runs.reuse = "s3://reused/state", {"path": "s3://reused/answers"}  # type: ignore[assignment]
    runs.run(["a"], ["b", "c"], ["d"], ["e"])  # within the five seconds of a file
    asked, reused = runs.run(["a", "b"], ["c"], ["d", "e", "f"])
    assert (asked, reused["answers"]) == (["f"], 5)


class Searches:
    """Runs of a job that embeds texts and scores them, one after another, each of which publishes."""

    def __init__(self, server: RetrievalServer, folder: Path) -> None:
        self.server, self.folder, self.count = server, folder, 0

    def run(self, **settings: Any) -> tuple[int, bool]:
        """Return the number of requests, and whether rows failed."""
        self.count += 1
        run, before, has_failed = make_run(self.folder, generation=f"g-{self.count}"), len(self.server.bodies), False
        first = {
            "base_url": self.server.url,
            "reuse": {"path": str(self.folder / "answers")},
            "model": "small",
        } | settings
        embedding = EndpointEmbedding(text_column="text", inputs_per_request=1, **first)  # type: ignore[arg-type]
        rerank = Rerank(query="a", documents_column="text", **first | {"api": API[embedding.api]})  # type: ignore[arg-type]
        for model in (embedding, rerank):
            predict: Any = model.load_with(run.answers / model.kind)
            has_failed |= bool(predict(batch_of(["a", "b"])).failed)
        job = {"inference": [embedding.model_dump(mode="json"), rerank.model_dump(mode="json")]}
        keep_answers(run, {"finished_at": f"2999-01-02T00:00:{self.count:02}.000Z", "settings": job})
        return len(self.server.bodies) - before, has_failed


API = {"openai": "cohere", "tei": "tei"}


@pytest.fixture
def searches(tmp_path: Path) -> Iterator[Searches]:
    with server_of(RetrievalServer()) as server:
        yield Searches(server, tmp_path)


def test_vectors_and_scores_that_fail_their_row_are_asked_for_again(searches: Searches) -> None:
    good, searches.server.changed = searches.server.changed, without_values
    assert searches.run() == (4, True)
    searches.server.changed = good
    assert searches.run() == (4, False)
    assert searches.run() == (0, False)


def test_answers_of_another_model_do_not_serve_although_the_requests_are_the_same(searches: Searches) -> None:
    assert searches.run(api="tei") == (4, False)
    assert searches.run(api="tei") == (0, False)
    assert searches.run(api="tei", model="large") == (4, False)


def without_values(answer: Any) -> Any:
    for item in answer.get("data", []):
        item["embedding"] = [float("nan")]
    for item in answer.get("results", []):
        item["relevance_score"] = None
    return answer
