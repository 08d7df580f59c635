"""Pipelines of transformers: what the suite of models does not hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.infer.models.pipeline import TransformersPipeline
from overnight.tasks.rows import blocks
from overnight.tasks.rows.tensors import to_arrow
from tests.contracts.models.adapters.pipelines import MASKED, TEXTS
from tests.contracts.models.case import worker_of
from tests.tasks.infer.pipelines import write

pytestmark = pytest.mark.usefixtures("one_thread")
Saved = Callable[[str], Path]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A function that returns the folder of a small model for a task."""
    folders: dict[str, Path] = {}

    def folder(task: str) -> Path:
        if task not in folders:
            folders[task] = write(tmp_path_factory.mktemp(task), task)
        return folders[task]

    return folder


def of_task(task: str, folder: Path, **settings: Any) -> TransformersPipeline:
    return TransformersPipeline(**{"task": task, "model": str(folder), "input": "body"} | settings)


def run(model: TransformersPipeline, values: Any, rows: slice = slice(None)) -> dict[str, pa.Array]:
    body = np.empty(len(values), object)
    body[:] = list(values)
    ids = np.array([f"r{place}" for place in range(len(values))], object)
    batch = {"body": body, "row_id": ids, "sampling_rate": np.full(len(values), 8000)}
    found: Any = model.load()({name: batch[name][rows] for name in model.inputs()})
    return {name: to_arrow(column) for name, column in found.items()}


def test_a_row_draws_the_same_text_in_any_batch(saved: Saved) -> None:
    drawing = {"max_new_tokens": 6, "do_sample": True}
    model = of_task("text-generation", saved("text-generation"), arguments=drawing)
    [texts] = run(model, ["the cat"] * 4).values()
    [some] = run(model, ["the cat"] * 4, slice(2, None)).values()
    assert some.to_pylist() == texts.to_pylist()[2:]
    assert len({str(text) for text in texts}) > 1


def test_a_row_that_the_pipeline_refuses_fails_alone_and_keeps_the_types(saved: Saved, tmp_path: Path) -> None:
    texts = [MASKED[0], "no mask", None, f"{MASKED[1]} [MASK]", MASKED[2]]
    model = of_task("fill-mask", saved("fill-mask"), arguments={"top_k": 1})
    done = worker_of(model, tmp_path)(pa.table({"row_id": list("abcde"), "body": texts}))
    failed = {row["row_id"]: row["__error_message"] for row in done.to_pylist() if row["__error_message"]}
    assert list(failed) == ["b", "c", "d"]
    assert "No mask_token ([MASK]) found on the input" in failed["b"]
    assert failed["c"] == "body: expected a value for the pipeline, found none."
    assert "expected values of one type" in failed["d"]
    assert [len(found) for found in blocks.live_rows(done)[0]["output"].to_pylist()] == [1, 1]


def test_a_batch_without_an_entity_has_the_type_of_others(saved: Saved) -> None:
    found = run(of_task("ner", saved("token-classification")), TEXTS[:2])["output"]
    assert found.to_pylist() == [[], []]
    assert [field.name for field in found.type.value_type] == ["entity", "score", "index", "word", "start", "end"]
