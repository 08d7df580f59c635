"""Pipelines of transformers: what the suite of models does not hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.infer.huggingface.pipeline_results import columns_of
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.pipeline import TransformersPipeline
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import blocks
from overnight.tasks.rows.tensors import to_arrow
from tests.contracts.models.adapters.pipelines import MASKED, TEXTS, sounds
from tests.tasks.blocks import source_block
from tests.tasks.infer.pipelines import write
from tests.tasks.infer.speech import write_whisper
from tests.tasks.runs import make_run


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


def batch_of(model: TransformersPipeline, values: Any) -> dict[str, np.ndarray]:
    body = np.empty(len(values), object)
    body[:] = list(values)
    ids = np.array([f"r{place}" for place in range(len(values))], object)
    batch = {"body": body, "row_id": ids, "sampling_rate": np.full(len(values), 8000)}
    return {name: batch[name] for name in model.inputs()}


def rows(columns: dict[str, Any]) -> list[Any]:
    return pa.table({name: to_arrow(values) for name, values in columns.items()}).to_pylist()


def test_a_row_draws_the_same_text_in_any_batch(saved: Callable[[str], Path]) -> None:
    drawing = {"max_new_tokens": 6, "do_sample": True}
    model = TransformersPipeline(
        model=str(saved("text-generation")), task="text-generation", input="body", arguments=drawing
    )
    batch = batch_of(model, ["the cat"] * 4)
    found = rows(model.load()(batch))
    assert rows(model.load()({name: values[2:] for name, values in batch.items()})) == found[2:]
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
    found = pa.table(model.load()(batch_of(model, TEXTS[:2])))
    assert found["output"].to_pylist() == [[], []]
    assert [field.name for field in found.schema.field("output").type.value_type] == [
        *("entity", "score", "index", "word", "start", "end")
    ]


def test_a_row_cannot_name_a_file_or_an_address(saved: Callable[[str], Path]) -> None:
    model = TransformersPipeline(model=str(saved("depth-estimation")), task="depth-estimation", input="body")
    with pytest.raises(RowError, match=r"expected an image of decode_image.* found a str. Overnight opens no file"):
        model.load()(batch_of(model, ["/etc/passwd"]))


def test_speech_of_another_rate_is_refused(tmp_path: Path) -> None:
    write_whisper(tmp_path)
    model = TransformersPipeline(model=str(tmp_path), task="automatic-speech-recognition", input="body")
    with pytest.raises(ContractError, match=r"expected 16000 samples per second, .* found 8000. Set sampling_rate"):
        model.load()(batch_of(model, sounds()[:2]))


def test_a_document_whose_words_need_a_library_that_is_missing_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "document-question-answering")
    model = {"model": str(tmp_path), "task": "document-question-answering"}
    with pytest.raises(JobError, match=r"without word_boxes.*: expected the library pytesseract .* pip install pytess"):
        TransformersPipeline(**model, input={"image": "image", "question": "asked"}).load()


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
