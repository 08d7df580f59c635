import numpy as np
import pytest
import torch
from transformers import (
    AutoImageProcessor,
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    CLIPVisionModelWithProjection,
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2Model,
    ResNetConfig,
    ResNetForImageClassification,
    ResNetModel,
    SiglipConfig,
    SiglipModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    ViTModel,
)

from overnight.tasks.infer.models.image_embedding import ImageEmbedding

TOWER = {"hidden_size": 32, "intermediate_size": 37, "num_attention_heads": 4, "num_hidden_layers": 2}
VISION = TOWER | {"image_size": 32, "patch_size": 8}
TEXT = TOWER | {"vocab_size": 99}
RESNET = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}


@pytest.fixture
def saved(tmp_path):
    """Saves a small random model with a processor, and gives its folder."""

    def save(network, processor=None):
        network.save_pretrained(tmp_path)
        (processor or ViTImageProcessorPil(size={"height": 32, "width": 32})).save_pretrained(tmp_path)
        return tmp_path

    torch.manual_seed(0)
    return save


def some_images(count=3, height=50, width=40):
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def assert_embeds(folder, expected_of, width):
    """`expected_of` gives the embedding of one image from its pixel values, with plain transformers."""
    processor = AutoImageProcessor.from_pretrained(folder)
    images = some_images()
    found = ImageEmbedding(model=str(folder)).load()({"image": images})["embedding"]
    assert found.shape == (len(images), width)
    assert found.dtype == np.float32
    for image, row in zip(images, found, strict=True):
        with torch.no_grad():
            expected = expected_of(processor(image, return_tensors="pt")["pixel_values"])
        np.testing.assert_allclose(row, expected.reshape(-1).numpy(), atol=1e-4)
    return found


def test_clip_gives_projected_features_that_are_not_normalised(saved):
    network = CLIPModel(CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=24)).eval()
    processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    folder = saved(network, processor)
    found = assert_embeds(folder, lambda pixels: network.get_image_features(pixel_values=pixels).pooler_output, 24)
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() > 0.01


def test_a_vision_tower_saved_with_its_projection_gives_projected_features(saved):
    config = CLIPConfig(text_config=TEXT, vision_config=VISION | {"projection_dim": 24})
    network = CLIPVisionModelWithProjection(config.vision_config).eval()
    assert_embeds(saved(network), lambda pixels: network(pixel_values=pixels).image_embeds, 24)


def test_siglip_gives_its_image_features(saved):
    network = SiglipModel(SiglipConfig(text_config=TEXT, vision_config=VISION)).eval()
    assert_embeds(saved(network), lambda pixels: network.get_image_features(pixel_values=pixels).pooler_output, 32)


def test_vit_gives_its_pooler_output(saved):
    network = ViTModel(ViTConfig(**VISION)).eval()
    assert_embeds(saved(network), lambda pixels: network(pixel_values=pixels).pooler_output, 32)


def test_dinov2_gives_the_class_token_of_its_last_layer(saved):
    network = Dinov2ForImageClassification(Dinov2Config(**VISION)).eval()
    plain = network.base_model
    assert isinstance(plain, Dinov2Model)
    assert_embeds(saved(network), lambda pixels: plain(pixel_values=pixels).last_hidden_state[:, 0], 32)


def test_resnet_gives_its_average_over_the_image_as_a_flat_vector(saved):
    network = ResNetForImageClassification(ResNetConfig(**RESNET)).eval()
    plain = network.base_model
    assert isinstance(plain, ResNetModel)
    assert_embeds(saved(network), lambda pixels: plain(pixel_values=pixels).last_hidden_state.mean((2, 3)), 32)


def test_a_vit_classifier_without_a_pooler_gives_its_class_token_and_nothing_random(saved):
    network = ViTForImageClassification(ViTConfig(**VISION)).eval()
    folder = saved(network)
    assert_embeds(folder, lambda pixels: network.base_model(pixel_values=pixels).last_hidden_state[:, 0], 32)


def test_half_precision_comes_out_as_float32(saved):
    folder = saved(ViTModel(ViTConfig(**VISION)))
    found = ImageEmbedding(model=str(folder), dtype="bfloat16").load()({"image": some_images()})["embedding"]
    exact = ImageEmbedding(model=str(folder)).load()({"image": some_images()})["embedding"]
    assert found.dtype == np.float32
    assert 0 < np.abs(found - exact).max() < 0.1
