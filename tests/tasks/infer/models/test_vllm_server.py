"""vLLM's own server, with small random models, row by row beside transformers: chat, LoRA, embeddings, rerank, images.

`make .venv-vllm/installed` makes vLLM's environment for CPUs, and OVERNIGHT_VLLM_PYTHON names its interpreter.
"""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from overnight.tasks.infer.models.vllm_embedding import VLLMEmbedding
from overnight.tasks.infer.models.vllm_rerank import VLLMRerank
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
OF_VECTORS = {"python": PYTHON, "dtype": "float32", "engine_settings": ENGINE}
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


def test_embeddings_are_those_of_transformers_and_a_text_that_is_too_long_costs_its_row(tmp_path: Path) -> None:
    model, texts = vllm_models.bert(tmp_path), [*TEXTS, "the " * 999]
    leaf = VLLMEmbedding(model=str(model), **OF_VECTORS, text_column="text")
    predict: Any = leaf.load()
    found = predict(batch_of(texts))
    assert list(found.failed) == [len(TEXTS)]
    inputs = AutoTokenizer.from_pretrained(model)(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        first = AutoModel.from_pretrained(model).eval()(**inputs).last_hidden_state[:, 0]
    here = torch.nn.functional.normalize(first, dim=1).numpy()
    np.testing.assert_allclose(np.stack(found.columns["embedding"][: len(TEXTS)]), here, atol=1e-5)
    assert predict.counters()["prompt_tokens"] >= sum(found.columns["prompt_tokens"].to_pylist()[:-1])


def test_scores_of_a_reranker_are_those_of_transformers_in_the_order_of_the_documents(tmp_path: Path) -> None:
    model, query = vllm_models.reranker(tmp_path), "the cat"
    leaf = VLLMRerank(model=str(model), **OF_VECTORS, query=query, documents_column="documents")
    batch = batch_of(["one"])
    batch["documents"][0] = TEXTS
    predict: Any = leaf.load()
    [there] = predict(batch).columns["scores"].to_pylist()
    inputs = AutoTokenizer.from_pretrained(model)([query] * len(TEXTS), TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits = AutoModelForSequenceClassification.from_pretrained(model).eval()(**inputs).logits[:, 0]
    np.testing.assert_allclose(there, torch.sigmoid(logits).numpy(), atol=1e-5)


def test_an_image_in_the_message_is_seen_as_by_transformers(tmp_path: Path) -> None:
    model, rng = vllm_models.smolvlm(tmp_path), np.random.default_rng(3)
    side = vllm_models.IMAGE_SIDE
    images = [Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)) for _ in range(12)]
    here = [caption_of(model, image) for image in images]
    assert len(set(here)) > 3, "these images differ"
    settings = SETTINGS | {"user": [{"image": "photo"}, {"text": "the cat"}], "max_new_tokens": 8}
    batch = batch_of(["the cat"] * len(images))
    batch["photo"] = np.array([png_of(image) for image in images], object)
    predict: Any = VLLM(model=str(model), **settings, engine_settings=ENGINE).load()
    there = [text.strip() for text in predict(batch).columns["generated_text"].to_pylist()]
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


def png_of(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
