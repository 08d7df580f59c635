"""Encoder-decoders through text_generation: row for row what plain transformers gives for one text at a time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from overnight.tasks.errors import RowError
from overnight.tasks.infer.models.text_generation import TextGeneration
from tests.tasks.infer.chat_models import VOCABULARY, chat_tokenizer, some_words

TEXTS = some_words(8)


@pytest.fixture(scope="module", params=["t5", "bart"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(2)
    folder, words = tmp_path_factory.mktemp(request.param), len(VOCABULARY)
    ends = {"pad_token_id": 0, "eos_token_id": 1}
    if request.param == "t5":
        sizes = {"d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4, "initializer_factor": 3.0}
        made: Any = T5ForConditionalGeneration(T5Config(vocab_size=words, decoder_start_token_id=0, **sizes, **ends))
    else:
        sizes = {
            "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37,
            "encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 24, "init_std": 0.6,
        }  # fmt: skip
        config = BartConfig(
            vocab_size=words, decoder_start_token_id=1, bos_token_id=2, forced_eos_token_id=None, **sizes, **ends
        )
        made = BartForConditionalGeneration(config)
    made.save_pretrained(folder)
    chat_tokenizer(None).save_pretrained(folder)
    return folder


def run(folder: Path, texts: list[str], **settings: Any) -> list[str]:
    settings = {"max_new_tokens": 9} | settings
    predictor = TextGeneration(model=str(folder), text_column="text", **settings)
    batch = {"text": np.array(texts, object), "row_id": np.array([f"r{i}" for i in range(len(texts))], object)}
    found: Any = predictor.load()({name: batch[name] for name in predictor.inputs()})
    return list(found["generated_text"])


def plain(folder: Path, texts: list[str], **settings: Any) -> list[str]:
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    found = []
    for text in texts:
        tokens = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        made = network.generate(**tokens, max_new_tokens=9, do_sample=False, **settings)
        found.append(tokenizer.decode(made[0], skip_special_tokens=True))
    return found


def test_each_row_gets_the_summary_that_it_gets_alone(model: Path) -> None:
    found = run(model, TEXTS)
    assert found == plain(model, TEXTS)
    assert len(set(found)) > 2


def test_a_beam_search_finds_what_transformers_finds(model: Path) -> None:
    found = run(model, TEXTS, num_beams=3)
    assert found == plain(model, TEXTS, num_beams=3)
    assert found != run(model, TEXTS)


def test_a_prompt_before_the_text_is_what_such_a_model_was_trained_with(model: Path) -> None:
    assert run(model, TEXTS, prompt="past: {text}") == plain(model, [f"past: {text}" for text in TEXTS])


def test_sampling_belongs_to_the_row_here_too(model: Path) -> None:
    found = run(model, TEXTS, temperature=1.0)
    assert run(model, TEXTS[:3], temperature=1.0) == found[:3]
    assert found != run(model, TEXTS)


def test_a_text_may_fill_the_encoder_whatever_the_answer_takes(model: Path) -> None:
    if "bart" not in str(model):
        pytest.skip("T5 has no longest text")
    run(model, ["cat " * 24])
    with pytest.raises(RowError, match="expected at most 24 tokens, found 25"):
        run(model, ["cat " * 25])


def test_a_beam_search_for_random_texts_is_refused() -> None:
    with pytest.raises(ValidationError, match="num_beams: searches for the likeliest text"):
        TextGeneration(model="model", text_column="text", temperature=1, num_beams=2)
