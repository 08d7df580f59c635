"""Pipelines of transformers, with the plain pipeline on each row alone."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from PIL import Image

from tests.contracts.models.adapters import pictures, texts
from tests.contracts.models.case import Case, ModelLeaf
from tests.tasks.infer.chat_models import some_words
from tests.tasks.infer.pipelines import images, write
from tests.tasks.infer.speech import write_whisper

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


def of_columns(
    task: str, saved: Callable[[Path], Any], columns: dict[str, Any], call: Callable[..., Any], **settings: Any
) -> Callable[[Path], Case]:
    """`call` takes the plain pipeline and the values of a row's `columns`."""

    def case(folder: Path) -> Case:
        saved(folder)
        model = {"task": task, "model": str(folder)}
        plain = transformers.pipeline(**model, device="cpu")
        expected = []
        for row in zip(*columns.values(), strict=True):
            returned = png(call(plain, *row))
            expected.append(returned if isinstance(returned, dict) else {"output": returned})
        return Case({**model, **settings}, columns, expected)

    return case


def of_task(task: str, values: Any, saved: Callable[[Path], Any], **arguments: Any) -> Callable[[Path], Case]:
    """The values are in the only column that the pipeline reads."""

    def call(plain: Any, value: Any, rate: int) -> Any:
        if task in ("text-classification", "token-classification"):
            return plain([value], **arguments)[0]  # alone it comes without its list
        return plain(plain_value(value), **arguments)

    columns = {"body": values, "sampling_rate": np.full(len(values), RATE)}
    return of_columns(task, saved, columns, call, input="body", arguments=arguments)


def written(task: str) -> Callable[[Path], Any]:
    return lambda folder: write(folder, task)


def bert(folder: Path) -> None:
    texts.saved(folder, texts.bert_classifier(texts.HEADS["several labels"])())


def vit(folder: Path) -> None:
    pictures.saved(folder, pictures.vit(**texts.HEADS["several labels"]))


TABLES = [{"a": ["0", "1"], "b": ["cat", "sea"]}, {"a": ["2", "3"], "b": ["mat", "sea"]}, {"a": ["2"], "b": ["1"]}]
LABELS = [["cats", "news"], ["sea"], ["cats", "news"]]
WORDS = [[{"word": "cat", "box": [1, 2, 30, 40]}, {"word": "sea", "box": [40, 2, 60, 40]}]] * 2
SHORT = {"generate_kwargs": {"max_new_tokens": 4, "num_beams": 1}}


def document(pipe: Any, question: str, words: Any) -> Any:
    return pipe({"question": question, "word_boxes": [(word["word"], word["box"]) for word in words]})


MASKED = [f"{text} [MASK]" for text in TEXTS]
PIPELINE = ModelLeaf(
    {
        "entities": of_task("token-classification", TEXTS, written("token-classification"), ignore_labels=[]),
        "groups": of_task(
            "token-classification", TEXTS, written("token-classification"), aggregation_strategy="simple"
        ),
        "fill-mask": of_task("fill-mask", MASKED, written("fill-mask"), top_k=2),
        "feature-extraction": of_task("feature-extraction", TEXTS, written("feature-extraction")),
        "text-generation": of_task(
            "text-generation", TEXTS, written("text-generation"), max_new_tokens=4, do_sample=False
        ),
        "depth-estimation": of_task("depth-estimation", IMAGES, written("depth-estimation")),
        "object-detection": of_task("object-detection", IMAGES, written("object-detection"), threshold=0.0),
        "audio-classification": of_task("audio-classification", sounds(), written("audio-classification"), top_k=2),
        "tables and questions": of_columns(
            "table-question-answering",
            written("table-question-answering"),
            {"body": ["the cat", "old sea", "two"], "table": TABLES},
            lambda pipe, question, table: pipe({"table": table, "query": question}),
            input={"query": "body", "table": "table"},
        ),
        "labels of each row": of_columns(
            "zero-shot-classification",
            written("zero-shot-classification"),
            {"body": TEXTS[:3], "topics": LABELS},
            lambda pipe, text, labels: pipe(text, candidate_labels=labels),
            input="body",
            argument_columns={"candidate_labels": "topics"},
        ),
        "speech": of_columns(
            "automatic-speech-recognition",
            write_whisper,
            {"body": sounds()[:2], "sampling_rate": [RATE] * 2},
            lambda pipe, samples, rate: pipe(samples.reshape(-1), **SHORT),
            input="body",
            arguments=SHORT,
        ),
        "words of a document": of_columns(
            "document-question-answering",
            written("document-question-answering"),
            {"body": ["the cat", "sea"], "words": WORDS},
            document,
            input={"question": "body", "word_boxes": "words"},
        ),
        "texts": of_task("text-classification", TEXTS, bert, top_k=9),
        "images": of_task("image-classification", IMAGES, vit, top_k=9),
    },
    column="body",
)
