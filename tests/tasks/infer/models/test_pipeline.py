"""Pipelines of transformers: row for row what `transformers.pipeline` returns for that row alone."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import transformers
from PIL import Image
from pydantic import ValidationError

from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.infer.huggingface.pipeline_results import columns_of
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.pipeline import TransformersPipeline
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import blocks
from overnight.tasks.rows.tensors import to_arrow, to_numpy
from tests.tasks.blocks import source_block
from tests.tasks.infer.chat_models import some_words
from tests.tasks.infer.pipelines import images, write
from tests.tasks.infer.speech import write_whisper
from tests.tasks.runs import make_run

TEXTS = some_words(12)
MASKED = [f"{text} [MASK]" for text in TEXTS]
LABELS = {"candidate_labels": ["cats", "news"]}
IMAGES = images((48, 64), (64, 64), (48, 64), (64, 48))
RATE = 16_000

Reference = Callable[[Any, Any, dict[str, Any]], Any]


def sounds() -> np.ndarray:
    draw, lengths = np.random.default_rng(0), (8000, 12000, 8000, 9000, 12000)
    found = np.empty(len(lengths), object)
    found[:] = [draw.normal(size=(1, length)).astype(np.float32) for length in lengths]
    return found


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the folder of a small model for a task."""
    folders: dict[str, Path] = {}

    def folder(task: str) -> Path:
        task = {"ner": "token-classification"}.get(task, task)
        if task not in folders:
            folders[task] = write(tmp_path_factory.mktemp(task), task)
        return folders[task]

    return folder


def batch_of(model: TransformersPipeline, **columns: Any) -> dict[str, np.ndarray]:
    count = len(next(iter(columns.values())))
    batch = {"row_id": objects([f"r{place}" for place in range(count)]), "sampling_rate": np.full(count, RATE)}
    batch |= {name: objects(values) for name, values in columns.items()}
    return {name: batch[name] for name in model.inputs()}


def objects(values: Any) -> np.ndarray:
    found = np.empty(len(values), object)
    found[:] = list(values)
    return found


def published(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows, with arrays as lists and PNG files as arrays of pixels."""
    made = {name: to_numpy(pa.chunked_array([to_arrow(values)])) for name, values in columns.items()}
    return [dict(zip(made, map(comparable, row), strict=True)) for row in zip(*made.values(), strict=True)]


def comparable(value: Any) -> Any:
    if isinstance(value, bytes):
        return comparable(Image.open(io.BytesIO(value)))
    if isinstance(value, dict):
        return {name: comparable(one) for name, one in value.items()}
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype.kind == "O"):
        return [comparable(one) for one in value]
    if isinstance(value, Image.Image) or hasattr(value, "tolist"):
        return np.asarray(value).tolist()
    return value


def assert_same(found: Any, expected: Any, place: str = "row") -> None:
    if isinstance(expected, dict):
        assert {name for name, value in found.items() if value is not None} <= set(expected), place
        for name, value in expected.items():
            assert_same(found[name], value, f"{place}.{name}")
    elif isinstance(expected, list) and not (expected and isinstance(expected[0], int | float)):
        assert len(found) == len(expected), place
        for number, pair in enumerate(zip(found, expected, strict=True)):
            assert_same(*pair, f"{place}[{number}]")
    elif isinstance(expected, float) or (isinstance(expected, list) and isinstance(expected[0], float)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=place)
    else:
        assert found == expected, place


def test_tables_and_questions_are_columns_of_one_input(saved: Callable[[str], Path]) -> None:
    tables = [{"a": ["0", "1"], "b": ["cat", "sea"]}, {"a": ["2", "3"], "b": ["mat", "sea"]}, {"c": ["2"], "d": ["1"]}]
    questions, folder = ["the cat", "old sea", "two"], str(saved("table-question-answering"))
    model = TransformersPipeline(
        model=folder, task="table-question-answering", input={"query": "asked", "table": "rows"}
    )
    columns = model.load()(batch_of(model, asked=questions, rows=tables))
    plain = transformers.pipeline("table-question-answering", model=folder)
    pairs = zip(published(columns), questions, tables, strict=True)
    for row, question, table in pairs:
        assert_same(row, comparable(plain({"table": table, "query": question})))
    assert pa.table(columns).schema.field("aggregator").type == pa.string()  # this model has none


def test_speech_is_what_the_plain_pipeline_hears_in_it(tmp_path: Path) -> None:
    write_whisper(tmp_path)
    short = {"generate_kwargs": {"max_new_tokens": 4, "num_beams": 1}}
    model = TransformersPipeline(
        model=str(tmp_path), task="automatic-speech-recognition", input="audio", arguments=short
    )
    batch = batch_of(model, audio=sounds()[:2])
    plain = transformers.pipeline("automatic-speech-recognition", model=str(tmp_path))
    heard = [plain(one.reshape(-1), **short)["text"] for one in batch["audio"]]
    assert [row["text"] for row in published(model.load()(batch))] == heard
    with pytest.raises(ContractError, match=r"expected 16000 samples per second, .* found 8000. Set sampling_rate"):
        model.load()(batch | {"sampling_rate": np.array([RATE, 8000])})


def test_labels_of_a_row_are_those_of_its_column(saved: Callable[[str], Path]) -> None:
    folder, labels = str(saved("zero-shot-classification")), [["cats", "news"], ["sea"], ["cats", "news"]]
    model = TransformersPipeline(
        model=folder, task="zero-shot-classification", input="body", argument_columns={"candidate_labels": "topics"}
    )
    found = published(model.load()(batch_of(model, body=TEXTS[:3], topics=labels)))
    plain = transformers.pipeline("zero-shot-classification", model=folder)
    for row, text, own in zip(found, TEXTS, labels, strict=False):
        assert_same(row, plain(text, candidate_labels=own))


def test_a_row_draws_the_same_text_in_any_batch(saved: Callable[[str], Path]) -> None:
    drawing = {"max_new_tokens": 6, "do_sample": True}
    model = TransformersPipeline(
        model=str(saved("text-generation")), task="text-generation", input="body", arguments=drawing
    )
    batch = batch_of(model, body=["the cat"] * 4)
    found = published(model.load()(batch))
    assert published(model.load()({name: values[2:] for name, values in batch.items()})) == found[2:]
    assert len({str(row) for row in found}) > 1


def test_a_row_that_the_pipeline_refuses_fails_alone_and_keeps_the_types(
    saved: Callable[[str], Path], tmp_path: Path
) -> None:
    texts = [MASKED[0], "no mask", None, f"{MASKED[1]} [MASK]", MASKED[2]]
    rows = source_block(0, 0, pa.table({"row_id": [f"a#{place}" for place in range(len(texts))], "body": texts}))
    model = TransformersPipeline(model=str(saved("fill-mask")), task="fill-mask", input="body", arguments={"top_k": 1})
    [done] = Worker(Link(model), make_run(tmp_path))(rows)
    failed = {row["row_id"]: row["__error_message"] for row in done.to_pylist() if row["__error_message"]}
    assert list(failed) == ["a#1", "a#2", "a#3"]
    assert "No mask_token ([MASK]) found on the input" in failed["a#1"]
    assert failed["a#2"] == "body: expected a value for the pipeline, found none."
    assert "expected values of one type" in failed["a#3"]
    assert [len(found) for found in blocks.live_rows(done)[0]["output"].to_pylist()] == [1, 1]


def test_a_batch_without_an_entity_has_the_type_of_others(saved: Callable[[str], Path]) -> None:
    model = TransformersPipeline(model=str(saved("ner")), task="ner", input="body")
    found = pa.table(model.load()(batch_of(model, body=TEXTS[:2])))
    assert found["output"].to_pylist() == [[], []]
    assert [field.name for field in found.schema.field("output").type.value_type] == [
        *("entity", "score", "index", "word", "start", "end")
    ]


def test_a_row_cannot_name_a_file_or_an_address(saved: Callable[[str], Path]) -> None:
    model = TransformersPipeline(model=str(saved("depth-estimation")), task="depth-estimation", input="body")
    with pytest.raises(RowError, match=r"expected an image of decode_image.* found a str. Overnight opens no file"):
        model.load()(batch_of(model, body=["/etc/passwd"]))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("token-clasification", r"found another \(did you mean token-classification\?\)"),
        ("translation_en_to_fr", "For such work use kind: text_generation"),
        ("question-answering", "For such work use kind: chat"),
        ("video-classification", "opens files that rows name. Use sample_frames"),
    ],
)
def test_a_task_that_this_transformers_lacks_is_refused_with_what_is_near(task: str, expected: str) -> None:
    with pytest.raises(JobError, match=expected):
        TransformersPipeline(model="a/b", task=task, input="body").load()


def test_a_model_without_what_the_task_needs_is_refused(saved: Callable[[str], Path]) -> None:
    def load(task: str, of: str, **settings: Any) -> None:
        TransformersPipeline(**{"model": str(saved(of)), "task": task, "input": "body"} | settings).load()

    with pytest.raises(JobError, match="expected all weights of a BertForTokenClassification"):
        load("token-classification", "fill-mask")
    with pytest.raises(JobError, match=r"expected a label that begins with entail.* found NEGATIVE, POSITIVE"):
        load("zero-shot-classification", "text-classification")
    with pytest.raises(JobError, match="AutoImageProcessor cannot load it"):
        load("depth-estimation", "fill-mask")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"arguments": {"batch_size": 4}}, "expected arguments of the pipeline's call, found batch_size, a setting"),
        ({"arguments": {"a": 1}, "argument_columns": {"a": "b"}}, "expected a in arguments or in argument_columns"),
        ({"input": ""}, "at least 1"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        TransformersPipeline(**{"model": "a/b", "task": "ner", "input": "body"} | settings)


def test_numbers_keep_their_types_and_a_missing_field_is_null() -> None:
    results = [
        {"a": np.float32(0.1), "b": 2**60, "c": [{"x": np.int32(1)}], "d": np.zeros((2, 3), np.uint8)},
        {"a": None, "c": [], "d": np.ones((1, 3), np.uint8), "e": np.bool_(True)},
    ]
    made = columns_of(results, {"f": pa.string()})
    found = {name: to_arrow(values) for name, values in made.items()}
    kinds = {"a": pa.float32(), "b": pa.int64(), "c": pa.list_(pa.struct([("x", pa.int32())])), "e": pa.bool_()}
    assert {name: found[name].type for name in kinds} == kinds
    assert found["a"].to_pylist() == [np.float32(0.1).item(), None]
    assert found["b"].to_pylist() == [2**60, None]
    assert [array.dtype for array in made["d"]] == [np.uint8, np.uint8]
    assert found["f"].type == pa.string()


def test_a_document_whose_words_need_a_library_that_is_missing_is_refused_with_its_name(tmp_path: Path) -> None:
    write(tmp_path, "document-question-answering")
    names = {"image": "image", "question": "asked"}
    model = {"model": str(tmp_path), "task": "document-question-answering"}
    with pytest.raises(JobError, match=r"without word_boxes.*: expected the library pytesseract .* pip install pytess"):
        TransformersPipeline(**model, input=names).load()
    found = TransformersPipeline(**model, input={"question": "asked", "word_boxes": "words"})
    words = [[{"word": "cat", "box": [1, 2, 30, 40]}, {"word": "sea", "box": [40, 2, 60, 40]}]] * 2
    rows = published(found.load()(batch_of(found, asked=["the cat", "sea"], words=words)))
    plain = transformers.pipeline(**model)
    boxes = [(word["word"], word["box"]) for word in words[0]]
    for row, question in zip(rows, ["the cat", "sea"], strict=True):
        assert_same(row["output"], comparable(plain({"question": question, "word_boxes": boxes})))
