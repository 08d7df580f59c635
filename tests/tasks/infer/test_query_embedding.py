"""Queries embedded by hand with plain transformers, and by a job's model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    SiglipConfig,
    SiglipModel,
    ViTConfig,
    ViTModel,
)

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.endpoint_embedding import EndpointEmbedding
from overnight.tasks.infer.models.image_classification import ImageClassification
from overnight.tasks.infer.models.image_embedding import ImageEmbedding
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from overnight.tasks.infer.query_embedding import embed_image, embed_text, embedder, has_settings
from tests.contracts.models.adapters.pictures import TOWER
from tests.contracts.models.adapters.pictures import VIT as VISION
from tests.tasks.infer.chat_server import refusal, server_of
from tests.tasks.infer.models.test_text_embedding import MINILM
from tests.tasks.infer.retrieval_server import RetrievalServer, vector_of
from tests.tasks.infer.words import WORDS, word_tokenizer

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 50, 40, 3), dtype=np.uint8)
SENTENCE = "two old dogs run past the red house"


def small_clip(folder: Path) -> Path:
    """A CLIP with small random weights, whose tokenizer ends texts as CLIP's does."""
    torch.manual_seed(0)
    text = TOWER | {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 16, "eos_token_id": 3, "bos_token_id": 2}
    config = CLIPConfig(text_config=text, vision_config=VISION, projection_dim=24)
    CLIPModel(config).save_pretrained(folder)
    word_tokenizer(cls_token="[CLS]", sep_token="[SEP]", model_max_length=16).save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def text_features(folder: Path, text: str, **settings: Any) -> Any:
    network, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        encoded = tokenizer([text], return_tensors="pt", **settings)
        return network.get_text_features(input_ids=encoded["input_ids"]).pooler_output[0].numpy()


@pytest.mark.parametrize("text", ["cat", f"{SENTENCE} {SENTENCE} {SENTENCE}"])
def test_clips_text_tower_embeds_a_text_as_plain_transformers_do(tmp_path: Path, text: str) -> None:
    folder = small_clip(tmp_path)
    found = embed_text(ImageEmbedding(model=str(folder), num_gpus=1, resources={"NPU": 1}), text)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, text_features(folder, text, truncation=True), atol=1e-5)


def test_siglip_is_given_its_text_padded_to_the_full_length_without_a_mask(tmp_path: Path) -> None:
    torch.manual_seed(0)
    text = TOWER | {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 16}
    SiglipModel(SiglipConfig(text_config=text, vision_config=VISION)).save_pretrained(tmp_path)
    word_tokenizer(model_max_length=16).save_pretrained(tmp_path)
    expected = text_features(tmp_path, SENTENCE, padding="max_length", max_length=16)
    np.testing.assert_allclose(embed_text(ImageEmbedding(model=str(tmp_path)), SENTENCE), expected, atol=1e-5)


def test_a_query_is_embedded_as_the_jobs_rows_are(tmp_path: Path) -> None:
    images, texts = ImageEmbedding(model=str(small_clip(tmp_path))), TextEmbedding(model=MINILM, text_column="says")
    on_device = {"num_gpus": 1}
    rows: Any = images.load()({"image": IMAGES})
    found = embed_image(images.model_copy(update=on_device), IMAGES[:1])
    np.testing.assert_allclose(found, rows["embedding"][0], atol=1e-5)
    rows = texts.load()({"says": np.array([SENTENCE, "cat"], object)})
    found = embed_text(texts.model_copy(update=on_device), SENTENCE)
    np.testing.assert_allclose(found, rows["embedding"][0], atol=1e-5)


IMAGE, TEXT = ImageEmbedding(model="a", name="looks"), TextEmbedding(model="b", text_column="text", name="says")
LABELS = ImageClassification(model="c", name="labels")


def test_the_model_that_embeds_a_query_is_found_or_named() -> None:
    unnamed = IMAGE.model_copy(update={"name": None})
    assert embedder([unnamed], None) == (unnamed, "embedding")
    assert embedder([LABELS, IMAGE], None) == (IMAGE, "looks_embedding")
    assert embedder([IMAGE, TEXT], "says") == (TEXT, "says_embedding")


@pytest.mark.parametrize(
    ("models", "name", "reason"),
    [
        ([IMAGE, TEXT], None, r"several models embed: looks, says\."),
        ([IMAGE, TEXT, LABELS], "labels", "model labels: expected one of looks, says"),
        ([LABELS], None, "found image_class"),
        ([], None, "found no model"),
    ],
)
def test_a_job_without_one_model_for_the_query_is_refused(models: list[Any], name: str | None, reason: str) -> None:
    with pytest.raises(JobError, match=reason):
        embedder(models, name)


def test_a_query_that_the_model_cannot_embed_is_refused(tmp_path: Path) -> None:
    ViTModel(ViTConfig(**VISION)).save_pretrained(tmp_path)
    for text, reason in ((" ", "found an empty one"), (SENTENCE, "found a vit")):
        with pytest.raises(JobError, match=reason):
            embed_text(ImageEmbedding(model=str(tmp_path)), text)
    with pytest.raises(JobError, match="embeds texts"):
        embed_image(TEXT, IMAGES[:1])


def test_a_query_is_embedded_by_the_endpoint_of_the_job_alone_and_without_its_prompt() -> None:
    with server_of(RetrievalServer()) as server:
        settings = {"model": "m", "base_url": server.url, "text_column": "text", "prompt": "passage: {text} {title}"}
        model = EndpointEmbedding(**settings, reuse={"path": "/dev/null/answers"})  # type: ignore[arg-type]
        assert embedder([model], None) == (model, "embedding")
        np.testing.assert_array_equal(embed_text(model, "a query"), vector_of("a query"))
        assert [server.asked(body) for body in server.bodies] == [["a query"]]
        with pytest.raises(JobError, match="Search with a text"):
            embed_image(model, IMAGES[:1])
        server.always["odd"] = refusal(400, "the text is odd")
        with pytest.raises(JobError, match=r"no embedding: .*the text is odd"):
            embed_text(model, "odd")
    same = {"kind": "endpoint_embedding", "model": "m", "dimensions": None}
    assert has_settings(model, same)
    for other in ({"model": "n"}, {"dimensions": 3}, {"kind": "text_embedding"}):
        assert not has_settings(model, same | other)
