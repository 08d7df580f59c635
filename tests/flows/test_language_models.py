"""Language models from a job file: in a worker, behind an endpoint, and row for row what plain transformers gives."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import pipeline

from tests.flows.conftest import RunJob, assert_settled, published, quarantine
from tests.tasks.infer.chat_models import chat_model, some_words
from tests.tasks.infer.chat_server import MOOD, ChatServer, chat_server
from tests.tasks.infer.models.test_vllm import llama_for_vllm


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as state:
        yield state


def write_texts(folder: Path, count: int) -> list[str]:
    texts = [f"{text} {i}" for i, text in enumerate(some_words(count))]
    (folder / "in").mkdir()
    pq.write_table(pa.table({"n": range(count), "text": texts}), folder / "in/a.parquet")
    return texts


def test_a_model_in_the_worker_and_one_behind_an_endpoint_answer_the_same_rows(
    server: ChatServer, tmp_path: Path, run_job: RunJob
) -> None:
    texts, model = write_texts(tmp_path, 60), chat_model(tmp_path / "model")
    server.key = "test"  # of AWS_SECRET_ACCESS_KEY, which the session's workers have
    server.always[texts[7]] = (400, "this is too odd", {})
    server.faults = {texts[i]: [(503, "overloaded", {})] for i in (1, 20, 40)}
    prices = {"price_per_million_input_tokens": 1.0, "price_per_million_output_tokens": 2.0}
    job: dict[str, Any] = {
        "name": "answers",
        "source": {"kind": "parquet", "path": str(tmp_path / "in")},
        "inference": [
            {"kind": "chat", "name": "own", "model": str(model), "user": "{text}", "system": "the cat"}
            | {"max_new_tokens": 12},
            {"kind": "openai", "name": "far", "model": "small", "base_url": server.url, "user": "{text}"}
            | {"api_key_env": "AWS_SECRET_ACCESS_KEY", "output_schema": MOOD, "max_tries": 3, **prices},
        ],
        "checks": {"max_quarantined": 0.1},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job)
    assert_settled(receipt, written=59)
    [bad] = quarantine(tmp_path / "out", "all")
    assert (bad["row_id"], bad["stage"]) == ("a.parquet#7", "infer")
    assert bad["error_message"] == "expected an answer, found HTTP 400: this is too odd"
    table = published(receipt, tmp_path / "out").sort_by("n")
    alone = pipeline("text-generation", str(model))
    for row in table.to_pylist()[:12]:
        messages = [{"role": "system", "content": "the cat"}, {"role": "user", "content": row["text"]}]
        made = alone(messages, max_new_tokens=12, do_sample=False, return_full_text=False)
        assert row["own_generated_text"] == made[0]["generated_text"]
    moods = ["good" if len(text) % 2 else "bad" for text in table["text"].to_pylist()]
    assert table["far_structured_output"].to_pylist() == [{"mood": mood} for mood in moods]
    assert table["far_cost"].to_pylist() == pytest.approx([11e-6] * 59)
    assert receipt["columns"]["far_cost"]["sum"] == pytest.approx(59 * 11e-6)
    assert receipt["columns"]["far_prompt_tokens"]["sum"] == 59 * 7
    # What the trial and the stream ask for the same row is paid for once; the odd row is never answered.
    asked = [text for _, text in server.seen]
    assert all(asked.count(text) == 1 + (i in (1, 20, 40)) for i, text in enumerate(texts) if i != 7)
    record = "".join(path.read_text(errors="replace") for path in (tmp_path / "out/_overnight").rglob("*.json"))
    assert "AWS_SECRET_ACCESS_KEY" in record
    assert not list((tmp_path / "out/_overnight").rglob("answers/*")), "published: nothing is asked for again"


@pytest.mark.slow
@pytest.mark.timeout(900)  # vLLM starts twice, for the trial and for the stream, in a minute each on two cores
@pytest.mark.skipif("OVERNIGHT_VLLM_PYTHON" not in os.environ, reason="needs an environment with vLLM")
def test_vllm_answers_every_row_of_a_job(tmp_path: Path, run_job: RunJob) -> None:
    texts, model = write_texts(tmp_path, 200), llama_for_vllm(tmp_path / "model")
    asks = {"kind": "vllm", "model": str(model), "user": "{text}", "max_new_tokens": 8, "workers": 1}
    asks |= {"python": "${OVERNIGHT_VLLM_PYTHON}", "dtype": "float32"}
    asks |= {"engine_settings": {"gpu_memory_utilization": 0.15, "enforce_eager": True}}
    job: dict[str, Any] = {
        "name": "fast",
        "source": {"kind": "parquet", "path": str(tmp_path / "in")},
        "inference": [asks],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job)
    assert_settled(receipt, written=200)
    table = published(receipt, tmp_path / "out").sort_by("n")
    alone = pipeline("text-generation", str(model))
    same = 0
    for text, answer in zip(texts[:40], table["generated_text"].to_pylist()[:40], strict=True):
        [made] = alone([{"role": "user", "content": text}], max_new_tokens=8, do_sample=False, return_full_text=False)
        same += made["generated_text"].strip() == answer.strip()
    assert same >= 38  # kernels differ, so ties may fall otherwise
