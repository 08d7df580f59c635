"""Language models from a job file: in a worker, behind an endpoint, and row for row what plain transformers gives."""

import os
from pathlib import Path
from typing import Any

import pytest
from transformers import pipeline

from tests import jobs
from tests.flows.conftest import RunJob, assert_settled, parquet, published, quarantine, write_parquet
from tests.tasks.infer.chat_models import chat_model, some_words
from tests.tasks.infer.chat_server import MOOD, chat_server
from tests.tasks.infer.engine_in_place_of_vllm import interpreter_in, starts_in
from tests.tasks.infer.models.test_vllm import llama_for_vllm


def write_texts(folder: Path, count: int) -> list[str]:
    texts = [f"{text} {i}" for i, text in enumerate(some_words(count))]
    write_parquet(folder / "in/a.parquet", n=range(count), text=texts)
    return texts


def answer(model: Any, tokens: int, *messages: tuple[str, str]) -> str:
    """What plain transformers answers to messages (role, content)."""
    asked = [{"role": role, "content": content} for role, content in messages]
    [made] = model(asked, max_new_tokens=tokens, do_sample=False, return_full_text=False)
    return str(made["generated_text"])


@pytest.mark.slow
def test_a_model_in_the_worker_and_one_behind_an_endpoint_answer_the_same_rows(tmp_path: Path, run_job: RunJob) -> None:
    texts, model, out = write_texts(tmp_path, 60), chat_model(tmp_path / "model"), tmp_path / "out"
    prices = {"price_per_million_input_tokens": 1.0, "price_per_million_output_tokens": 2.0}
    own = {"kind": "chat", "name": "own", "model": str(model), "system": "the cat", "max_new_tokens": 12}
    far = {"kind": "openai", "name": "far", "model": "small", "output_schema": MOOD, "max_tries": 3, **prices}
    far["api_key_env"] = "AWS_SECRET_ACCESS_KEY"  # the session's workers have it
    with chat_server() as server:
        server.key = "test"
        server.always[texts[7]] = (400, "this is too odd", {})
        server.faults = {texts[i]: [(503, "overloaded", {})] for i in (1, 20, 40)}
        models = [one | {"user": "{text}"} for one in (own, far | {"base_url": server.url})]
        job = jobs.job(tmp_path, source=parquet(tmp_path), inference=models, checks={"max_quarantined": 0.1})
        receipt = run_job(job)
        asked = [text for _, text in server.seen]
    assert_settled(receipt, written=59)
    [bad] = quarantine(out, "all")
    assert (bad["row_id"], bad["stage"]) == ("a.parquet#7", "infer")
    assert bad["error_message"] == "expected an answer, found HTTP 400: this is too odd"
    table = published(receipt, out).sort_by("n")
    alone = pipeline("text-generation", str(model))
    for row in table.to_pylist()[:12]:
        assert row["own_generated_text"] == answer(alone, 12, ("system", "the cat"), ("user", row["text"]))
    moods = ["good" if len(text) % 2 else "bad" for text in table["text"].to_pylist()]
    assert table["far_structured_output"].to_pylist() == [{"mood": mood} for mood in moods]
    assert table["far_cost"].to_pylist() == pytest.approx([11e-6] * 59)
    assert receipt["columns"]["far_cost"]["sum"] == pytest.approx(59 * 11e-6)
    assert receipt["columns"]["far_prompt_tokens"]["sum"] == 59 * 7
    # What the trial and the stream ask for the same row is paid for once; the odd row is never answered.
    assert all(asked.count(text) == 1 + (i in (1, 20, 40)) for i, text in enumerate(texts) if i != 7)
    record = "".join(path.read_text(errors="replace") for path in (out / "_overnight").rglob("*.json"))
    assert "AWS_SECRET_ACCESS_KEY" in record
    assert not list((out / "_overnight").rglob("answers/*")), "published: nothing is asked for again"


@pytest.mark.slow
def test_two_prompts_of_the_same_weights_have_one_engine(tmp_path: Path, run_job: RunJob) -> None:
    texts, model = write_texts(tmp_path, 40), chat_model(tmp_path / "model")
    asks = {"kind": "vllm", "model": str(model), "python": str(interpreter_in(tmp_path)), "workers": 1}
    prompts = {"forth": "{text}", "back": "{forth_generated_text}"}
    models: list[dict[str, Any]] = [{**asks, "name": name, "user": user} for name, user in prompts.items()]
    models.insert(1, {"kind": "derive_columns", "columns": {"forth_size": "length(forth_generated_text)"}})
    receipt = run_job(jobs.job(tmp_path, source=parquet(tmp_path), inference=models))
    assert_settled(receipt, written=40)
    table = published(receipt, tmp_path / "out").sort_by("n")
    assert table["back_generated_text"].to_pylist() == texts
    assert table["forth_size"].to_pylist() == [len(text) for text in texts]
    assert len(starts_in(tmp_path)) == 1
    [(name, figures)] = receipt["performance"]["engines"].items()
    assert (name, figures["generated_tokens"] >= 80) == ("forth + back", True)


@pytest.mark.slow
def test_two_prompts_share_the_workers_that_loaded_their_weights(tmp_path: Path, run_job: RunJob) -> None:
    texts, model = write_texts(tmp_path, 40), chat_model(tmp_path / "model")
    asks = {"kind": "chat", "model": str(model)}
    models: list[dict[str, Any]] = [
        {**asks, "name": "first", "user": "{text}", "max_new_tokens": 8, "by_row": {"max_new_tokens": "n"}},
        {"kind": "derive_columns", "columns": {"question": "'the ' || first_generated_text"}},
        {**asks, "name": "second", "user": "{question}", "max_new_tokens": 4, "where": "n % 2 = 0"},
    ]
    job = jobs.job(tmp_path, source=parquet(tmp_path), inference=models, checks={"max_quarantined": 0.1})
    receipt = run_job(job | {"shuffle": {"kind": "sorted", "by": "-n"}})
    assert_settled(receipt, written=39)
    assert [row["row_id"] for row in quarantine(tmp_path / "out", "all")] == ["a.parquet#0"], "a limit of 0 tokens"
    alone = pipeline("text-generation", str(model))
    rows = published(receipt, tmp_path / "out").sort_by("n").to_pylist()
    for row in rows[:8]:
        assert row["first_generated_text"] == answer(alone, row["n"], ("user", texts[row["n"]]))
        expected = None if row["n"] % 2 else answer(alone, 4, ("user", row["question"]))
        assert row["second_generated_text"] == expected


@pytest.mark.slow
@pytest.mark.timeout(900)  # vLLM starts twice, for the trial and for the stream, in a minute each on two cores
@pytest.mark.skipif("OVERNIGHT_VLLM_PYTHON" not in os.environ, reason="needs an environment with vLLM")
def test_vllm_answers_every_row_of_a_job(tmp_path: Path, run_job: RunJob) -> None:
    texts, model = write_texts(tmp_path, 200), llama_for_vllm(tmp_path / "model")
    asks = {"kind": "vllm", "model": str(model), "max_new_tokens": 8, "workers": 1}
    asks |= {"python": "${OVERNIGHT_VLLM_PYTHON}", "dtype": "float32"}
    asks |= {"engine_settings": {"gpu_memory_utilization": 0.15, "enforce_eager": True}}
    prompts = {"plain": "{text}", "longer": "the {text}"}
    models = [{**asks, "name": name, "user": user} for name, user in prompts.items()]
    receipt = run_job(jobs.job(tmp_path, source=parquet(tmp_path), inference=models))
    assert_settled(receipt, written=200)
    assert list(receipt["performance"]["engines"]) == ["plain + longer"], "the weights are loaded once"
    answers = published(receipt, tmp_path / "out").sort_by("n")
    alone = pipeline("text-generation", str(model))
    for name, user in prompts.items():
        pairs = zip(texts[:40], answers[f"{name}_generated_text"].to_pylist()[:40], strict=True)
        same = [answer(alone, 8, ("user", user.format(text=text))).strip() == there.strip() for text, there in pairs]
        assert sum(same) >= 38  # kernels differ, so ties may fall otherwise
