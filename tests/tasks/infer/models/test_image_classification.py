import json

import numpy as np
import pytest
import torch
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    BitImageProcessorPil,
    ConvNextImageProcessorPil,
    EfficientNetConfig,
    EfficientNetForImageClassification,
    EfficientNetImageProcessorPil,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    ViTModel,
)

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.models.image_classification import ImageClassification

LABELS = dict(enumerate(["cat", "dog", "fox", "owl", "yak"]))
VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "image_size": 40,
    "patch_size": 8,
}


def sharpened(network):
    """The random network with answers that differ from image to image."""
    pixels = torch.tensor(np.stack(images_of(*[(40, 40)] * 8)) / 127 - 1, dtype=torch.float32).permute(0, 3, 1, 2)
    last = list(network.classifier.modules())[-1]
    with torch.no_grad():
        last.weight.mul_(1.5 / network.eval()(pixels).logits.std(0).mean())
        last.bias.sub_(network(pixels).logits.mean(0))
    return network


def small_vit():
    return ViTForImageClassification(ViTConfig(**VIT, id2label=LABELS))


def small_resnet():
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
    return ResNetForImageClassification(ResNetConfig(**sizes, id2label=LABELS))


def small_efficientnet():
    sizes = {"width_coefficient": 0.2, "depth_coefficient": 0.1, "hidden_dim": 256, "image_size": 40}
    return EfficientNetForImageClassification(EfficientNetConfig(**sizes, initializer_range=0.5, id2label=LABELS))


MODELS = {
    "vit": (small_vit, ViTImageProcessorPil(size={"height": 40, "width": 40}, image_mean=[0.4, 0.5, 0.6])),
    "resnet": (small_resnet, ConvNextImageProcessorPil(size={"shortest_edge": 40}, crop_pct=0.875)),
    "efficientnet": (
        small_efficientnet,
        EfficientNetImageProcessorPil(size={"height": 40, "width": 40}, rescale_offset=True),
    ),
}


def saved(folder, network, processor):
    torch.manual_seed(0)
    sharpened(network()).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    """The folder of a small random model of each kind."""
    return saved(tmp_path_factory.mktemp(request.param), *MODELS[request.param])


def plain_transformers(folder, images):
    """Labels and confidences, one image at a time, as the documentation of transformers does it."""
    processor = AutoImageProcessor.from_pretrained(folder)
    network = AutoModelForImageClassification.from_pretrained(folder).eval()
    labels, confidences = [], []
    for image in images:
        inputs = processor(images=image, input_data_format="channels_last", return_tensors="pt")
        with torch.no_grad():
            probabilities = network(**inputs).logits[0].softmax(-1)
        labels.append(network.config.id2label[int(probabilities.argmax())])
        confidences.append(float(probabilities.max()))
    return labels, confidences


def images_of(*shapes):
    """Smooth random images, so that resizing keeps something of them."""
    random = np.random.default_rng(1)
    images = []
    for height, width in shapes:
        rows, columns = np.mgrid[0:height, 0:width, 0:3][:2] / 8
        waves = np.sin(rows * random.uniform(0.2, 2, 3) + columns * random.uniform(0.2, 2, 3) + random.uniform(0, 6, 3))
        images.append(np.uint8(127 + 120 * waves))
    return images


def as_objects(images):
    column = np.empty(len(images), object)
    column[:] = images
    return column


def assert_same(found, expected):
    assert list(found["predicted_label"]) == expected[0]
    assert found["confidence"].dtype == np.float32
    np.testing.assert_allclose(found["confidence"], expected[1], atol=1e-4)


@pytest.mark.parametrize("shape", [(40, 40), (48, 48), (100, 70), (20, 24)])
def test_stacked_images_get_what_plain_transformers_gives(model, shape):
    images = images_of(*[shape] * 5)
    predict = ImageClassification(model=str(model)).load()
    assert_same(predict({"image": np.stack(images)}), plain_transformers(model, images))


def test_images_of_unlike_sizes_keep_their_order(model):
    images = images_of((40, 40), (100, 70), (48, 48), (3, 50), (64, 200), (100, 70))
    predict = ImageClassification(model=str(model)).load()
    expected = plain_transformers(model, images)
    assert len(set(np.round(expected[1], 3))) > 2
    assert_same(predict({"image": as_objects(images)}), expected)


def test_several_labels_come_as_lists_the_likeliest_first(model):
    images = images_of(*[(40, 40)] * 5)
    found = ImageClassification(model=str(model), top_k=3).load()({"image": np.stack(images)})
    network = AutoModelForImageClassification.from_pretrained(model).eval()
    processor = AutoImageProcessor.from_pretrained(model, backend="pil")
    with torch.inference_mode():
        expected = network(**processor(images, return_tensors="pt")).logits.softmax(-1).topk(3)
    assert found["top_labels"].to_pylist() == [[LABELS[i] for i in row] for row in expected.indices.tolist()]
    np.testing.assert_allclose(found["top_confidences"].to_pylist(), expected.values, atol=1e-5)
    assert_same(found, plain_transformers(model, images))


def test_images_that_the_model_takes_in_several_sizes_keep_their_order(tmp_path):
    folder = saved(tmp_path, small_resnet, BitImageProcessorPil(size={"shortest_edge": 40}, do_center_crop=False))
    images = images_of((40, 60), (50, 40), (40, 60), (44, 99), (60, 48))
    expected = plain_transformers(folder, images)
    assert_same(ImageClassification(model=str(folder)).load()({"image": as_objects(images)}), expected)


def test_only_a_processor_that_does_more_than_normalise_keeps_its_work_on_the_cpu(model, caplog):
    ImageClassification(model=str(model)).load()
    assert ("does more than rescale and normalise" in caplog.text) == ("efficientnet" in model.name)


@pytest.mark.filterwarnings("error")
def test_read_only_arrays_from_the_object_store_will_do(model):
    images = np.stack(images_of((40, 40)))
    images.flags.writeable = False
    assert len(ImageClassification(model=str(model)).load()({"image": images})["confidence"]) == 1


def test_half_precision_stays_near_and_comes_out_as_float32(model):
    images = images_of((48, 48), (48, 48))
    found = ImageClassification(model=str(model), dtype="bfloat16").load()({"image": np.stack(images)})
    exact = ImageClassification(model=str(model)).load()({"image": np.stack(images)})
    assert found["confidence"].dtype == np.float32
    np.testing.assert_allclose(found["confidence"], exact["confidence"], atol=0.2)
    assert not np.array_equal(found["confidence"], exact["confidence"])


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (None, "NoneType"),
        (np.zeros((8, 8), np.uint8), r"uint8 \(8, 8\)"),
        (np.zeros((8, 8, 3), np.float32), r"float32 \(8, 8, 3\)"),
        (np.zeros((3, 8, 8), np.uint8), r"uint8 \(3, 8, 8\)"),
    ],
)
def test_a_row_that_is_no_image_says_what_it_is(model, image, found):
    predict = ImageClassification(model=str(model)).load()
    with pytest.raises(RowError, match=f"expected a uint8 array of H x W x 3, found {found}"):
        predict({"image": as_objects([*images_of((40, 40)), image])})


def test_a_model_without_preprocessor_settings_is_refused(tmp_path):
    ViTForImageClassification(ViTConfig(**VIT)).save_pretrained(tmp_path)
    with pytest.raises(JobError, match=r"expected preprocessor_config\.json beside the model"):
        ImageClassification(model=str(tmp_path)).load()


def test_a_checkpoint_that_was_not_trained_to_classify_is_refused(tmp_path):
    ViTModel(ViTConfig(**VIT)).save_pretrained(tmp_path)
    ViTImageProcessorPil(size={"height": 40, "width": 40}).save_pretrained(tmp_path)
    with pytest.raises(JobError, match=r"classifier.bias, classifier.weight \(2 missing\), which would be random"):
        ImageClassification(model=str(tmp_path)).load()


def test_a_folder_with_a_config_that_is_not_a_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-architecture"}))
    with pytest.raises(JobError, match=r"model .*no-such-architecture") as caught:
        ImageClassification(model=str(tmp_path)).load()
    assert caught.value.stage == "infer"


def test_the_fingerprint_covers_weights_and_preprocessor(model):
    assert {"model.safetensors", "config.json", "preprocessor_config.json"} <= set(
        ImageClassification(model=str(model)).fingerprint()
    )
