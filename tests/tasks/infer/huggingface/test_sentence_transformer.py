"""Models whose files ask for more than pooling and normalisation, saved by sentence-transformers and run by it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from overnight.tasks.errors import JobError
from tests.tasks.infer.models.test_text_embedding import embed, some_texts, word_tokenizer
from tests.tasks.infer.words import WORDS

library = pytest.importorskip("sentence_transformers")

Encoder = tuple[Any, Any]


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    """A small random BERT that holds 64 tokens, as a module of sentence-transformers, and the mean over its tokens."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    config = BertConfig(vocab_size=len(WORDS) + 4, max_position_embeddings=64, initializer_range=0.5, **sizes)
    BertModel(config).save_pretrained(tmp_path / "bert")
    word_tokenizer(cls_token="[CLS]", sep_token="[SEP]").save_pretrained(tmp_path / "bert")
    return Transformer(str(tmp_path / "bert")), Pooling(32, "mean")


def saved(folder: Path, *modules: Any, **settings: Any) -> Any:
    model = library.SentenceTransformer(modules=list(modules), device="cpu", **settings)
    model.save_pretrained(str(folder))
    return model


def dense(encoder: Encoder) -> dict[str, Any]:
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    return {"modules": [*encoder, Dense(32, 12, activation_function=torch.nn.Tanh()), Normalize()]}


def router(encoder: Encoder) -> dict[str, Any]:
    from sentence_transformers.sentence_transformer.modules import Dense, Router

    heads = {"query": [Dense(32, 8)], "document": [Dense(32, 8)]}
    return {"modules": [*encoder, Router(heads, default_route="document")]}


def prompt_left_out(encoder: Encoder) -> dict[str, Any]:
    encoder[1].include_prompt = False
    return {"modules": encoder, "prompts": {"document": "the red house "}, "default_prompt_name": "document"}


def static(encoder: Encoder) -> dict[str, Any]:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    return {"modules": [StaticEmbedding(word_tokenizer().backend_tokenizer, embedding_dim=16)]}


@pytest.mark.parametrize("make", [dense, router, prompt_left_out, static])
def test_a_model_with_more_than_pooling_gives_what_the_library_gives(
    make: Callable[[Encoder], dict[str, Any]], encoder: Encoder, tmp_path: Path
) -> None:
    made = make(encoder)
    model = saved(tmp_path / "model", *made.pop("modules"), **made)
    values = some_texts(30, 90)
    expected = np.stack([model.encode(text) for text in values])
    for batch_size in (4, "auto"):
        found = embed(tmp_path / "model", values, batch_size=batch_size)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(expected[0] - expected[1]).max() > 0.01


def test_a_plain_model_that_the_library_saved_gives_the_same_without_it(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers.sentence_transformer.modules import Normalize

    encoder[0].max_seq_length = 9
    model = saved(tmp_path / "model", *encoder, Normalize(), prompts={"x": "old "}, default_prompt_name="x")
    values = some_texts(12, 40)
    expected = np.stack([model.encode(text) for text in values])
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    np.testing.assert_allclose(embed(tmp_path / "model", values), expected, atol=1e-4)


def test_half_precision_comes_out_as_float32_and_near(encoder: Encoder, tmp_path: Path) -> None:
    made = dense(encoder)
    saved(tmp_path / "model", *made["modules"])
    values = some_texts(5, 20)
    found = embed(tmp_path / "model", values, dtype="bfloat16")
    assert 0 < np.abs(found - embed(tmp_path / "model", values)).max() < 0.2


def test_code_that_a_model_names_outside_the_library_is_not_run(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "model", *encoder)
    (tmp_path / "canary.py").write_text(f"open({str(tmp_path / 'sung')!r}, 'w')\nclass Module: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    for place in (tmp_path, tmp_path / "model"):
        (place / "canary.py").write_text((tmp_path / "canary.py").read_text())
    modules = json.loads((tmp_path / "model/modules.json").read_text())
    (tmp_path / "model/modules.json").write_text(
        json.dumps([*modules, {"idx": 2, "name": "2", "path": "", "type": "canary.Module"}])
    )
    with pytest.raises(JobError, match=r"sentence-transformers cannot load it: .*canary\.Module"):
        embed(tmp_path / "model", ["the cat"])
    assert not (tmp_path / "sung").exists()
