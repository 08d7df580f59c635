"""Pipelines of transformers, with the plain pipeline on each row alone."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from PIL import Image
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification

from tests.contracts.models.adapters import pictures, texts
from tests.contracts.models.case import Case, ModelLeaf
from tests.tasks.infer.chat_models import some_words
from tests.tasks.infer.pipelines import images, write

RATE = 16_000
TEXTS = some_words(6)
CANDIDATES = {"candidate_labels": ["cats", "news"]}
IMAGES = images((48, 64), (64, 64), (48, 64), (64, 48))


def sounds() -> np.ndarray:
    draw, lengths = np.random.default_rng(0), (8000, 12000, 8000, 9000)
    values = np.empty(len(lengths), object)
    values[:] = [draw.normal(size=(1, length)).astype(np.float32) for length in lengths]
    return values


def plain_value(value: Any) -> Any:
    """Return a row's value as the pipeline's call takes it."""
    if not isinstance(value, np.ndarray):
        return value
    return Image.fromarray(value) if value.dtype == np.uint8 else value.reshape(-1)


def png(value: Any) -> Any:
    """Return what a pipeline returns, with images as PNG files and arrays as lists."""
    if isinstance(value, Image.Image):
        file = io.BytesIO()
        value.save(file, "PNG")
        return file.getvalue()
    if isinstance(value, dict):
        return {name: png(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [png(inner) for inner in value]
    return value.detach().numpy() if hasattr(value, "detach") else value


def of_task(task: str, values: Any, saved: Callable[[Path], Any], **arguments: Any) -> Callable[[Path], Case]:
    def case(folder: Path) -> Case:
        saved(folder)
        settings = {"task": task, "model": str(folder)}
        plain = transformers.pipeline(**settings, device="cpu")
        expected = []
        for value in values:
            returned = plain(plain_value(value), **arguments)
            if isinstance(returned, list) and task in ("text-classification", "token-classification"):
                returned = plain([value], **arguments)[0]
            expected.append(png(returned) if isinstance(returned, dict) else {"output": png(returned)})
        columns = {"body": values, "sampling_rate": np.full(len(values), RATE)}
        return Case({**settings, "input": "body", "arguments": arguments}, columns, expected)

    return case


def written(task: str) -> Callable[[Path], Any]:
    return lambda folder: write(folder, task)


def bert(head: dict[str, Any]) -> Callable[[Path], Any]:
    return lambda folder: texts.saved(folder, BertForSequenceClassification(BertConfig(**texts.BERT, **head)))


def vit(head: dict[str, Any]) -> Callable[[Path], Any]:
    return lambda folder: pictures.saved(folder, ViTForImageClassification(ViTConfig(**pictures.VIT, **head)))


MASKED = [f"{text} [MASK]" for text in TEXTS]
PIPELINE = ModelLeaf(
    {
        "token-classification": of_task(
            "token-classification", TEXTS, written("token-classification"), ignore_labels=[]
        ),
        "groups": of_task(
            "token-classification", TEXTS, written("token-classification"), aggregation_strategy="simple"
        ),
        "zero-shot": of_task(
            "zero-shot-classification", TEXTS, written("zero-shot-classification"), multi_label=True, **CANDIDATES
        ),
        "fill-mask": of_task("fill-mask", MASKED, written("fill-mask"), top_k=2),
        "feature-extraction": of_task("feature-extraction", TEXTS, written("feature-extraction")),
        "text-generation": of_task(
            "text-generation", TEXTS, written("text-generation"), max_new_tokens=4, do_sample=False
        ),
        "zero-shot of images": of_task(
            "zero-shot-image-classification", IMAGES, written("zero-shot-image-classification"), **CANDIDATES
        ),
        "depth-estimation": of_task("depth-estimation", IMAGES, written("depth-estimation")),
        "image-segmentation": of_task("image-segmentation", IMAGES, written("image-segmentation")),
        "object-detection": of_task("object-detection", IMAGES, written("object-detection"), threshold=0.0),
        "audio-classification": of_task("audio-classification", sounds(), written("audio-classification"), top_k=2),
        **{
            f"text, {name}": of_task("text-classification", TEXTS, bert(head), top_k=9)
            for name, head in texts.HEADS.items()
        },
        **{
            f"image, {name}": of_task("image-classification", IMAGES, vit(head), top_k=9)
            for name, head in texts.HEADS.items()
        },
    },
    column="body",
)
