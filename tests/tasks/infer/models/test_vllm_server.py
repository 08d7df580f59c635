"""vLLM's own server, with small random models, row by row beside transformers: chat, LoRA, embeddings, rerank, images.

`make .venv-vllm/installed` makes vLLM's environment for CPUs, and OVERNIGHT_VLLM_PYTHON names its interpreter.
"""

import base64
import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoModel,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    AutoProcessor,
    AutoTokenizer,
)

from overnight.tasks.infer.chat.server_process import ChildServer
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.models.vllm import VLLM
from tests.contracts.endpoints.suite import batch_of
from tests.tasks.infer import vllm_models
from tests.tasks.infer.chat_models import some_words

PYTHON = os.environ.get("OVERNIGHT_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),  # on two cores a server starts in 30 s to two minutes
    pytest.mark.skipif(not PYTHON, reason="OVERNIGHT_VLLM_PYTHON names no interpreter of an environment with vLLM"),
]
TEXTS = some_words(40)
ENGINE = {"gpu_memory_utilization": 0.15, "enforce_eager": True}
SETTINGS = {"python": PYTHON, "dtype": "float32", "user": "{text}", "max_new_tokens": 8}
SECONDS_TO_START = 600
SAME = 0.95  # kernels differ, so that the likeliest token of a few rows may be another


@contextlib.contextmanager
def vllm_server(model: Path, **engine: Any) -> Iterator[str]:
    """Run vLLM's server as a worker starts it. The value is its address."""
    leaf = VLLM(model=str(model), **SETTINGS, engine_settings=ENGINE | engine)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VLLM_API_KEY")}
    server = ChildServer(leaf.command(PYTHON, model_location.find(str(model))), environment)
    try:
        assert not server.wait("/health", SECONDS_TO_START)
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.end()


def asked(url: str, **body: Any) -> Any:
    response = httpx.post(url, json={"model": "model", **body}, timeout=120, trust_env=False)
    assert response.status_code == 200, response.text
    return response.json()


def texts_of(predict: Any) -> list[str]:
    found = predict(batch_of(TEXTS))
    assert not found.failed
    return [text.strip() for text in found.columns["generated_text"].to_pylist()]


def share_of_equal(there: list[str], here: list[str]) -> float:
    return sum(one == other for one, other in zip(there, here, strict=True)) / len(here)


def test_a_worker_answers_as_transformers_does_and_counts_what_its_engine_did(tmp_path: Path) -> None:
    model, rows = vllm_models.llama(tmp_path), "the cat sat on the mat " * 30
    chat = {"user": rows + "{text}", "max_new_tokens": 8}  # the common beginning is longer than a block of the cache
    leaf = VLLM(model=str(model), **SETTINGS | chat, workers=1, max_concurrent_requests=1, engine_settings=ENGINE)
    predict = leaf.load()
    assert share_of_equal(texts_of(predict), texts_of(Chat(model=str(model), **chat).load())) >= SAME
    counters = predict.counters()
    assert counters["generated_tokens"] > len(TEXTS)
    assert counters["prefix_tokens"] >= counters["cached_tokens"] > len(TEXTS) * 100
    assert counters["prompt_tokens"] > len(TEXTS) * 180
    assert counters["preemptions"] == 0


def test_the_name_of_a_lora_adapter_in_the_request_selects_its_weights(tmp_path: Path) -> None:
    base, adapter, merged = vllm_models.llama(tmp_path / "base"), tmp_path / "adapter", tmp_path / "merged"
    vllm_models.lora(base, adapter, merged)
    chat = {"user": "{text}", "max_new_tokens": 8}
    here = {"model": texts_of(Chat(model=str(base), **chat).load())}
    here["formal"] = texts_of(Chat(model=str(merged), **chat).load())
    assert share_of_equal(here["model"], here["formal"]) < 0.5, "the adapter changes the answers"
    adapters = {"enable_lora": True, "max_lora_rank": 8, "lora_modules": [f"formal={adapter}"]}
    with vllm_server(base, **adapters) as url:
        for name, expected in here.items():
            there = texts_of(OpenAI(base_url=f"{url}/v1", model=name, **chat).load())
            assert share_of_equal(there, expected) >= SAME


def test_embeddings_are_those_of_transformers_in_the_order_of_the_inputs(tmp_path: Path) -> None:
    model = vllm_models.bert(tmp_path)
    with vllm_server(model, runner="pooling") as url:
        answer = asked(f"{url}/v1/embeddings", input=TEXTS, encoding_format="base64")
        too_long = httpx.post(
            f"{url}/v1/embeddings", json={"model": "model", "input": ["the " * 999, "cat"]}, timeout=60
        )
    there = np.stack([np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in answer["data"]])
    assert [row["index"] for row in answer["data"]] == list(range(len(TEXTS)))
    inputs = AutoTokenizer.from_pretrained(model)(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        first = AutoModel.from_pretrained(model).eval()(**inputs).last_hidden_state[:, 0]
    here = torch.nn.functional.normalize(first, dim=1).numpy()
    np.testing.assert_allclose(there, here, atol=1e-5)
    assert too_long.status_code == 400, "one text that is too long refuses the whole request"


def test_scores_of_a_reranker_are_those_of_transformers_by_their_index(tmp_path: Path) -> None:
    model, query = vllm_models.reranker(tmp_path), "the cat"
    with vllm_server(model, runner="pooling") as url:
        answer = asked(f"{url}/v1/rerank", query=query, documents=TEXTS)
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True), "the best is the first, so an index names the document"
    there = {result["index"]: result["relevance_score"] for result in answer["results"]}
    inputs = AutoTokenizer.from_pretrained(model)([query] * len(TEXTS), TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits = AutoModelForSequenceClassification.from_pretrained(model).eval()(**inputs).logits[:, 0]
    np.testing.assert_allclose([there[row] for row in range(len(TEXTS))], torch.sigmoid(logits).numpy(), atol=1e-5)


def test_an_image_in_the_message_is_seen_as_by_transformers(tmp_path: Path) -> None:
    model, rng = vllm_models.smolvlm(tmp_path), np.random.default_rng(3)
    side = vllm_models.IMAGE_SIDE
    images = [Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)) for _ in range(12)]
    here = [caption_of(model, image) for image in images]
    assert len(set(here)) > 3, "these images differ"
    with vllm_server(model, limit_mm_per_prompt={"image": 1}) as url:
        there = [caption_by(url, image) for image in images]
    assert share_of_equal(there, here) >= 0.8


def caption_of(model: Path, image: Image.Image) -> str:
    processor = AutoProcessor.from_pretrained(model, backend="pil")
    network = AutoModelForImageTextToText.from_pretrained(model).eval()
    parts = [{"type": "image", "image": image}, {"type": "text", "text": "the cat"}]
    prompt = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}
    inputs = processor.apply_chat_template([{"role": "user", "content": parts}], **prompt)
    inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        tokens = network.generate(**inputs, max_new_tokens=8, do_sample=False)
    return str(processor.decode(tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)).strip()


def caption_by(url: str, image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    data = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": data}}, {"type": "text", "text": "the cat"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 8, "temperature": 0}
    return str(asked(f"{url}/v1/chat/completions", **body)["choices"][0]["message"]["content"]).strip()
