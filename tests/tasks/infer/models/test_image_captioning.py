"""Several images of a row, and conversations with images, with a small random LLaVA, beside plain transformers."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from overnight.tasks.errors import RowError
from overnight.tasks.infer.models.image_captioning import ImageCaptioning
from tests.contracts.models.adapters.pictures import llava
from tests.tasks.infer.pipelines import images

FIRST, SECOND = images((48, 64), (64, 64)), images((32, 32), (64, 48))[::-1]
WORDS = ["cat", "old sea"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llava")
    llava(folder)
    return folder


def png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def by_transformers(folder: Path, content: Sequence[Any]) -> str:
    """The text for one message of images and texts."""
    processor = AutoProcessor.from_pretrained(folder, backend="pil")
    network = AutoModelForImageTextToText.from_pretrained(folder).eval()
    parts = []
    for part in content:
        is_text = isinstance(part, str)
        parts.append({"type": "text", "text": part} if is_text else {"type": "image", "image": Image.fromarray(part)})
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": parts}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        made = network.generate(**inputs, max_new_tokens=6, do_sample=False)
    return processor.decode(made[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def column(values: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def batch(**columns: Sequence[Any]) -> dict[str, Any]:
    named = {name: column(values) for name, values in columns.items()}
    return {**named, "row_id": np.array(["a", "b"][: len(next(iter(columns.values())))], object)}


def captions(folder: Path, rows: dict[str, Any], **settings: Any) -> list[Any]:
    model = ImageCaptioning(model=str(folder), max_new_tokens=6, **settings)
    done: Any = model.load()(rows)
    return done.columns["generated_text"].to_pylist()


def test_several_images_of_a_row_are_where_the_parts_name_them(folder: Path) -> None:
    parts = [{"image": "front"}, {"text": "{word} and"}, {"image": "back"}, {"text": "the sea"}]
    rows = batch(front=FIRST, back=list(map(png, SECOND)), word=WORDS)
    expected = []
    for front, back, word in zip(FIRST, SECOND, WORDS, strict=True):
        expected.append(by_transformers(folder, [front, f"{word} and", back, "the sea"]))
    assert captions(folder, rows, user=parts) == expected
    swapped = batch(front=SECOND, back=FIRST, word=WORDS)
    assert captions(folder, swapped, user=parts) != expected


def test_a_conversation_brings_its_images(folder: Path) -> None:
    url = f"data:image/png;base64,{base64.b64encode(png(FIRST[1])).decode()}"
    shown = [
        {"type": "image", "image": {"bytes": png(FIRST[0]), "path": None}},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    chats = []
    for part, word in zip(shown, WORDS, strict=True):
        chats.append([{"role": "user", "content": [part, {"type": "text", "text": word}]}])
    expected = [by_transformers(folder, [image, word]) for image, word in zip(FIRST, WORDS, strict=True)]
    assert captions(folder, batch(chat=chats), messages="chat") == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("cat", "expected at least one image in each conversation"),
        ([{"type": "image"}], "expected a part with its image, found one without"),
        ([{"type": "image_url", "image_url": {"url": "https://a/b.png"}}], "expected a decoded image or the bytes"),
        ([{"type": "input_audio", "input_audio": {}}], "a part of type input_audio"),
    ],
)
def test_a_conversation_without_an_image_that_it_can_show_is_refused(folder: Path, content: Any, words: str) -> None:
    with pytest.raises(RowError, match=words):
        captions(folder, batch(chat=[[{"role": "user", "content": content}]]), messages="chat")
