"""Queries embedded by hand with plain transformers, and by a job's model."""

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
from overnight.tasks.infer.models.image_classification import ImageClassification
from overnight.tasks.infer.models.image_embedding import ImageEmbedding
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from overnight.tasks.infer.query_embedding import embed_image, embed_text, embedder
from tests.contracts.models.adapters.pictures import TOWER
from tests.contracts.models.adapters.pictures import VIT as VISION
from tests.tasks.infer.models.test_text_embedding import MINILM
from tests.tasks.infer.words import WORDS, word_tokenizer

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 50, 40, 3), dtype=np.uint8)
SENTENCE = "two old dogs run past the red house"


def small_clip(folder):
    """A CLIP with small random weights, whose tokenizer ends texts as CLIP's does."""
    torch.manual_seed(0)
    text = TOWER | {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 16, "eos_token_id": 3, "bos_token_id": 2}
    config = CLIPConfig(text_config=text, vision_config=VISION, projection_dim=24)
    CLIPModel(config).save_pretrained(folder)
    word_tokenizer(cls_token="[CLS]", sep_token="[SEP]", model_max_length=16).save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def text_features(folder, text, **settings):
    network, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        encoded = tokenizer([text], return_tensors="pt", **settings)
        return network.get_text_features(input_ids=encoded["input_ids"]).pooler_output[0].numpy()


@pytest.mark.parametrize("text", [SENTENCE, "cat", f"{SENTENCE} {SENTENCE} {SENTENCE}"])
def test_clips_text_tower_embeds_a_text_as_plain_transformers_do(tmp_path, text):
    folder = small_clip(tmp_path)
    found = embed_text(ImageEmbedding(model=str(folder), num_gpus=1, resources={"NPU": 1}), text)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, text_features(folder, text, truncation=True), atol=1e-5)


def test_siglip_is_given_its_text_padded_to_the_full_length_without_a_mask(tmp_path):
    torch.manual_seed(0)
    text = TOWER | {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 16}
    SiglipModel(SiglipConfig(text_config=text, vision_config=VISION)).save_pretrained(tmp_path)
    word_tokenizer(model_max_length=16).save_pretrained(tmp_path)
    expected = text_features(tmp_path, SENTENCE, padding="max_length", max_length=16)
    np.testing.assert_allclose(embed_text(ImageEmbedding(model=str(tmp_path)), SENTENCE), expected, atol=1e-5)


def test_an_image_is_embedded_as_the_jobs_rows_are(tmp_path):
    model = ImageEmbedding(model=str(small_clip(tmp_path)), num_gpus=1)
    rows = model.model_copy(update={"num_gpus": 0}).load()({"image": IMAGES})["embedding"]
    np.testing.assert_allclose(embed_image(model, IMAGES[:1]), rows[0], atol=1e-5)


def test_a_text_is_embedded_as_the_jobs_rows_are():
    model = TextEmbedding(model=MINILM, text_column="says")
    rows = model.load()({"says": np.array([SENTENCE, "cat"], object)})["embedding"]
    np.testing.assert_allclose(embed_text(model.model_copy(update={"num_gpus": 1}), SENTENCE), rows[0], atol=1e-5)
    with pytest.raises(JobError, match="image: the job's model embeds texts"):
        embed_image(model, IMAGES[:1])


def test_a_model_of_images_alone_takes_no_text(tmp_path):
    ViTModel(ViTConfig(**VISION)).save_pretrained(tmp_path)
    with pytest.raises(JobError, match="expected a model that embeds texts and images, such as CLIP, found a vit"):
        embed_text(ImageEmbedding(model=str(tmp_path)), SENTENCE)


def test_the_model_that_embeds_a_query_is_found_or_has_to_be_named():
    image = ImageEmbedding(model="a", name="looks")
    text = TextEmbedding(model="b", text_column="text", name="says")
    labels = ImageClassification(model="c", name="labels")
    assert embedder([image.model_copy(update={"name": None})], None)[1] == "embedding"
    assert embedder([labels, image], None) == (image, "looks_embedding")
    assert embedder([image, text], "says") == (text, "says_embedding")
    with pytest.raises(JobError, match=r"several models embed: looks, says\. Choose one of them as model"):
        embedder([image, text], None)
    with pytest.raises(JobError, match=r"model labels: expected one of looks, says"):
        embedder([image, text, labels], "labels")
    with pytest.raises(JobError, match=r"expected a job with image_embedding or text_embedding, found image_class"):
        embedder([labels], None)
    with pytest.raises(JobError, match=r"found no model"):
        embedder([], None)
    with pytest.raises(JobError, match=r"found an empty one"):
        embed_text(text, " ")
