"""A small random LLaVA says of each image what plain transformers has it say of the image alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.models.image_captioning import ImageCaptioning
from tests.tasks.infer.chat_models import VOCABULARY, chat_model, chat_tokenizer

TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }} {% endif %}{% endfor %}[END] {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
ASKED = {"user": "{word} and the sea", "system": "the old cat", "max_new_tokens": 10}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llava(tmp_path_factory.mktemp("llava"))


def llava(folder: Path) -> Path:
    """A random LLaVA for images of 30 x 30, saved in `folder`."""
    torch.manual_seed(11)
    words = len(VOCABULARY) + 1
    sizes = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"initializer_range": 0.3}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(image_size=30, patch_size=10, projection_dim=32, **sizes),
        text_config=LlamaConfig(
            vocab_size=words, max_position_embeddings=64, eos_token_id=1, bos_token_id=None, **sizes
        ),
        image_token_id=words - 1,
        vision_feature_layer=-1,
    )
    made = LlavaForConditionalGeneration(config)
    made.generation_config.eos_token_id = 1
    made.save_pretrained(folder)
    tokenizer = chat_tokenizer(None, ("<image>",))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    images = CLIPImageProcessorPil(size={"shortest_edge": 30}, crop_size={"height": 30, "width": 30})
    LlavaProcessor(
        images, tokenizer, patch_size=10, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def some_images(count: int = 7) -> np.ndarray:
    draw = np.random.default_rng(4)
    images = np.empty(count, object)
    for i in range(count):
        images[i] = draw.integers(0, 256, (30 + 5 * i, 50, 3), dtype=np.uint8) // (i + 1)
    return images


def batch_of(images: np.ndarray) -> dict[str, Any]:
    count = len(images)
    words = np.array([VOCABULARY[5 + i] for i in range(count)], object)
    return {"image": images, "word": words, "row_id": np.array([f"r{i}" for i in range(count)], object)}


def run(folder: Path, images: np.ndarray, **settings: Any) -> Any:
    predictor, batch = ImageCaptioning(model=str(folder), **ASKED, **settings), batch_of(images)
    return predictor.load()({name: batch[name] for name in predictor.inputs()})


def plain(folder: Path, images: np.ndarray) -> list[tuple[str, int]]:
    processor, network = (
        AutoProcessor.from_pretrained(folder),
        AutoModelForImageTextToText.from_pretrained(folder).eval(),
    )
    found = []
    for image, word in zip(images, batch_of(images)["word"], strict=True):
        shown = {"type": "image", "image": Image.fromarray(image)}
        messages = [
            {"role": "system", "content": [{"type": "text", "text": "the old cat"}]},
            {"role": "user", "content": [shown, {"type": "text", "text": f"{word} and the sea"}]},
        ]
        given = processor.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        given.pop("token_type_ids", None)
        new = network.generate(**given, max_new_tokens=10, do_sample=False)[0, given["input_ids"].shape[1] :]
        found.append((processor.decode(new, skip_special_tokens=True), given["input_ids"].shape[1]))
    return found


def test_each_image_is_described_as_plain_transformers_describes_it_alone(model: Path) -> None:
    found = run(model, some_images())
    captions = found.columns["generated_text"].to_pylist()
    assert list(zip(captions, found.columns["prompt_tokens"].to_pylist(), strict=True)) == plain(model, some_images())
    assert len(set(captions)) > 4


def test_the_caption_is_of_the_image(model: Path) -> None:
    black = np.zeros((7, 30, 30, 3), np.uint8)
    assert run(model, black).columns["generated_text"] != run(model, some_images()).columns["generated_text"]


def test_something_else_than_an_image_says_so(model: Path) -> None:
    images = some_images(2)
    images[1] = np.zeros((4, 4), np.uint8)
    with pytest.raises(RowError, match=r"image: expected a uint8 array of H x W x 3, found uint8 \(4, 4\)"):
        run(model, images)


def test_a_model_without_eyes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="expected a processor of images and texts, found a"):
        run(chat_model(tmp_path), some_images(1))
