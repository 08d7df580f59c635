"""Models of images: classifiers, encoders, detectors and captions, with plain transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import (
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoProcessor,
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    ConvNextImageProcessorPil,
    Dinov2Config,
    Dinov2ForImageClassification,
    EfficientNetImageProcessorPil,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
    SiglipConfig,
    SiglipModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    ViTModel,
    pipeline,
)

from tests.contracts.models.adapters.texts import HEADS, labelled
from tests.contracts.models.case import Case, ModelLeaf
from tests.tasks.infer.chat_models import VOCABULARY, chat_tokenizer
from tests.tasks.infer.detectors import detected, write_detector
from tests.tasks.infer.pipelines import images

IMAGES = images((48, 64), (64, 64), (48, 64), (64, 48), (32, 32))
SIZE = {"height": 32, "width": 32}
TOWER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
VIT = {**TOWER, "image_size": 32, "patch_size": 8}
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
NAMED = HEADS["one label of several"]

Network = Callable[[], PreTrainedModel]
EXPECTED = "expected a uint8 array of H x W x 3, found"
WRONG_IMAGES = [
    (np.zeros((8, 8), np.uint8), f"{EXPECTED} uint8 (8, 8)"),
    (np.zeros((8, 8, 3), np.float32), f"{EXPECTED} float32 (8, 8, 3)"),
    (np.zeros((3, 8, 8), np.uint8), f"{EXPECTED} uint8 (3, 8, 8)"),
]


def saved(folder: Path, network: PreTrainedModel, processor: Any = None, spread: float = 0.4) -> None:
    """Save the network with weights that tell images apart, and its processor."""
    torch.manual_seed(11)
    with torch.no_grad():
        for weights in network.parameters():
            weights.normal_(0, spread)
    network.save_pretrained(folder)
    (processor or ViTImageProcessorPil(size=SIZE)).save_pretrained(folder)


def classifier(network: Network, processor: Any = None, spread: float = 0.4) -> Callable[[Path], Case]:
    def case(folder: Path) -> Case:
        saved(folder, network(), processor, spread)
        own = AutoImageProcessor.from_pretrained(folder, backend="pil")
        plain = pipeline("image-classification", str(folder), image_processor=own, device="cpu")
        expected = labelled([plain(Image.fromarray(image), top_k=9) for image in IMAGES])
        return Case({"model": str(folder), "top_k": 9}, {"image": IMAGES}, expected)

    return case


def vit(**head: Any) -> PreTrainedModel:
    return ViTForImageClassification(ViTConfig(**VIT, **head))


def resnet() -> PreTrainedModel:
    return ResNetForImageClassification(ResNetConfig(**RESNET, **NAMED))


PROCESSORS = {
    "not resized to another scale": ViTImageProcessorPil(size=SIZE, do_rescale=False, image_std=[99.0] * 3),
    "not normalised": ViTImageProcessorPil(size=SIZE, do_normalize=False),
    "scaled by another factor": ViTImageProcessorPil(size=SIZE, rescale_factor=1 / 127.5, do_normalize=False),
    "a mean for each channel": ViTImageProcessorPil(size=SIZE, image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]),
    "the nearest pixel": ViTImageProcessorPil(size=SIZE, resample=0),
    "resized and cropped": CLIPImageProcessorPil(size={"shortest_edge": 40}, crop_size=SIZE),
    "cropped to more than it has": CLIPImageProcessorPil(size={"shortest_edge": 20}, crop_size=SIZE),
    "shifted by an offset": EfficientNetImageProcessorPil(size=SIZE, include_top=True),
    "cropped by a share": ConvNextImageProcessorPil(size={"shortest_edge": 32}, crop_pct=0.875),
}
IMAGE_CLASSIFICATION = ModelLeaf(
    {
        **{name: classifier(lambda head=head: vit(**head)) for name, head in HEADS.items()},
        "resnet": classifier(resnet),
        **{name: classifier(lambda: vit(**NAMED), made) for name, made in PROCESSORS.items()},
    },
    column="image",
    wrong=WRONG_IMAGES,
    half="one label of several",
)


def embedder(
    network: Network,
    embedding: Callable[[Any, torch.Tensor], torch.Tensor],
    change: Callable[[Path], Any] = lambda folder: None,
) -> Callable[[Path], Case]:
    """`embedding` takes the network and the pixel values of one image; `change` is made to the files afterwards."""

    def case(folder: Path) -> Case:
        saved(folder, network())
        plain = type(network()).from_pretrained(folder).eval()
        processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        expected = []
        for image in IMAGES:
            with torch.inference_mode():
                found = embedding(plain, processor(image, return_tensors="pt")["pixel_values"])
            expected.append({"embedding": found.reshape(-1).numpy()})
        change(folder)
        return Case({"model": str(folder)}, {"image": IMAGES}, expected)

    return case


def clip() -> CLIPConfig:
    text = {**TOWER, "vocab_size": 30, "max_position_embeddings": 24}
    return CLIPConfig(text_config=text, vision_config=VIT | {"projection_dim": 24}, projection_dim=24)


def without_inner_width(folder: Path) -> None:
    """Leave the width to the outer settings, as the checkpoints of OpenAI do, whose width is 512 or 768."""
    config = json.loads((folder / "config.json").read_text())
    del config["vision_config"]["projection_dim"]
    (folder / "config.json").write_text(json.dumps(config))


def features(network: Any, pixels: torch.Tensor) -> torch.Tensor:
    return network.get_image_features(pixel_values=pixels).pooler_output


def of_base(read: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    return lambda network, pixels: read(network.base_model(pixel_values=pixels).last_hidden_state)


IMAGE_EMBEDDING = ModelLeaf(
    {
        "clip": embedder(lambda: CLIPModel(clip()), features),
        "a clip with one width": embedder(lambda: CLIPModel(clip()), features, without_inner_width),
        "the vision tower of a clip": embedder(
            lambda: CLIPVisionModelWithProjection(clip().vision_config),
            lambda network, pixels: network(pixel_values=pixels).image_embeds,
        ),
        "siglip": embedder(
            lambda: SiglipModel(SiglipConfig(text_config={**TOWER, "vocab_size": 30}, vision_config=VIT)), features
        ),
        "vit": embedder(
            lambda: ViTModel(ViTConfig(**VIT)), lambda network, pixels: network(pixel_values=pixels).pooler_output
        ),
        "a classifier without a pooler": embedder(vit, of_base(lambda hidden: hidden[:, 0])),
        "dinov2": embedder(
            lambda: Dinov2ForImageClassification(Dinov2Config(**VIT)), of_base(lambda hidden: hidden[:, 0])
        ),
        "resnet": embedder(
            lambda: ResNetForImageClassification(ResNetConfig(**RESNET)), of_base(lambda hidden: hidden.mean((2, 3)))
        ),
    },
    column="image",
    wrong=WRONG_IMAGES,
    half="vit",
)


def detector(kind: str, **settings: Any) -> Callable[[Path], Case]:
    def case(folder: Path) -> Case:
        write_detector(folder, kind)
        scores = [score for image in IMAGES for _, score, _ in detected(folder, image, 0.0)]
        threshold = settings.get("threshold", float(np.median(scores)))
        expected = []
        for image in IMAGES:
            objects = detected(folder, image, threshold)
            boxes = [np.array(box) for _, _, box in objects]
            labels, scores = [label for label, _, _ in objects], [score for _, score, _ in objects]
            expected.append({"boxes": boxes, "labels": labels, "scores": scores})
        return Case({"model": str(folder), "threshold": threshold}, {"image": IMAGES}, expected, tolerance=1e-3)

    return case


OBJECT_DETECTION = ModelLeaf(
    {"yolos": detector("yolos"), "detr": detector("detr"), "no object": detector("yolos", threshold=1.0)},
    column="image",
    wrong=WRONG_IMAGES,
)

TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }} {% endif %}{% endfor %}[END] {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def llava(folder: Path) -> None:
    """Write a random LLaVA for images of 30 x 30."""
    torch.manual_seed(11)
    words = len(VOCABULARY) + 1
    sizes = {**TOWER, "hidden_size": 32, "initializer_range": 0.3}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(image_size=30, patch_size=10, projection_dim=32, **sizes),
        text_config=LlamaConfig(
            vocab_size=words, max_position_embeddings=64, eos_token_id=1, bos_token_id=None, **sizes
        ),
        image_token_id=words - 1,
        vision_feature_layer=-1,
    )
    network = LlavaForConditionalGeneration(config)
    network.generation_config.eos_token_id = 1
    network.save_pretrained(folder)
    tokenizer = chat_tokenizer(None, ("<image>",))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    processor = CLIPImageProcessorPil(size={"shortest_edge": 30}, crop_size={"height": 30, "width": 30})
    LlavaProcessor(
        processor, tokenizer, patch_size=10, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip


def smolvlm(folder: Path) -> None:
    """Write a random SmolVLM (Idefics3) whose images become four tokens each."""
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    special = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
    words = len(VOCABULARY) + len(special)
    tokenizer = chat_tokenizer(None, special)
    tokenizer.add_special_tokens({"additional_special_tokens": [*special]})
    sizes = {**TOWER, "hidden_size": 32, "initializer_range": 0.3}
    config = Idefics3Config(
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        text_config=LlamaConfig(
            vocab_size=words, max_position_embeddings=64, eos_token_id=1, bos_token_id=None, pad_token_id=0, **sizes
        ),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    network = Idefics3ForConditionalGeneration(config)
    network.generation_config.eos_token_id = 1
    network.save_pretrained(folder)
    processor = Idefics3ImageProcessorPil(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 32}, do_image_splitting=False
    )
    Idefics3Processor(processor, tokenizer, image_seq_len=4, chat_template=TEMPLATE).save_pretrained(folder)


def captioner(write: Callable[[Path], None]) -> Callable[[Path], Case]:
    def case(folder: Path) -> Case:
        write(folder)
        processor = AutoProcessor.from_pretrained(folder, backend="pil")
        network = AutoModelForImageTextToText.from_pretrained(folder).eval()
        words, expected = ["cat", "sea", "dogs", "mat", "old"], []
        for image, word in zip(IMAGES, words, strict=True):
            shown = {"type": "image", "image": Image.fromarray(image)}
            messages = [{"role": "user", "content": [shown, {"type": "text", "text": f"{word} and the sea"}]}]
            given = processor.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
            )
            given.pop("token_type_ids", None)
            with torch.inference_mode():
                made = network.generate(**given, max_new_tokens=6, do_sample=False)
            length = given["input_ids"].shape[1]
            text = processor.decode(made[0, length:], skip_special_tokens=True)
            expected.append({"generated_text": text, "prompt_tokens": length})
        settings = {"model": str(folder), "user": "{word} and the sea", "max_new_tokens": 6}
        return Case(settings, {"image": IMAGES, "word": words}, expected)

    return case


IMAGE_CAPTIONING = ModelLeaf(
    {"llava": captioner(llava), "idefics3": captioner(smolvlm)}, column="image", wrong=WRONG_IMAGES
)
