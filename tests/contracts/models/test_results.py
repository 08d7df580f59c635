"""What every kind of model promises of the rows that it gets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.rows.result import Outcome
from overnight.tasks.rows.tensors import TENSOR, to_arrow, to_numpy
from overnight.tasks.workers import retry
from tests.contracts.models.case import Case, ModelLeaf, worker_of
from tests.contracts.models.suite import SUITE

pytestmark = pytest.mark.usefixtures("one_thread")
NOT_HERE = "its model is on an endpoint: see the suite of endpoints"
BY_VLLM = ("vllm", "vllm_embedding", "vllm_rerank")
VLLMS = dict.fromkeys(BY_VLLM, NOT_HERE)
Build = Callable[..., Case]


def test_each_kind_of_model_has_an_adapter() -> None:
    SUITE.assert_complete()


@SUITE.promise("a row's result is the library's for this row alone, in each form of a saved model", **VLLMS)
def test_results_are_those_of_the_library(leaf: ModelLeaf, build: Build, tmp_path: Path) -> None:
    wrong = {}
    for form in leaf.forms:
        try:
            case = build(leaf, form)
            case.assert_rows(case.results(worker_of(case.model(), tmp_path)))
        except Exception as error:
            wrong[form] = f"{type(error).__name__}: {str(error)[:600]}"
    assert not wrong, "\n".join(f"{form}: {reason}" for form, reason in wrong.items())


@SUITE.promise("a row has the same result in any order, number and batch of rows", **VLLMS)
def test_results_do_not_depend_on_the_batch(leaf: ModelLeaf, build: Build, tmp_path: Path) -> None:
    case = build(leaf)
    together = case.results(worker_of(case.model(), tmp_path))
    rows = list(range(len(case.table)))
    for order, batch_size in ((rows[::-1], 1), (rows[::-1] + rows * 2, 2), (rows * 3, "auto")):
        work = worker_of(case.model(batch_size=batch_size), tmp_path)
        case.assert_rows(case.results(work, case.table.take(order)), [together[row] for row in order])


@SUITE.promise("one row and no row have the types of many rows", **VLLMS)
def test_types_do_not_depend_on_the_rows(leaf: ModelLeaf, build: Build, tmp_path: Path) -> None:
    case = build(leaf)
    model = case.model()
    work, made = worker_of(model, tmp_path), model.outputs_made()
    done = work(case.table)
    assert made is None or list(case.added(done)[0]) == made, "the columns that the settings show"
    types = done.schema.types
    for row in range(len(case.table)):
        assert work(case.table[row : row + 1]).schema.types == types
    assert len(work(case.table[:0])) == 0


@SUITE.promise(
    "a row without a value fails alone, and the reason names the column",
    **VLLMS,
    python="the code decides which values it takes",
)
def test_a_row_without_a_value_fails_alone(leaf: ModelLeaf, build: Build, tmp_path: Path) -> None:
    case = build(leaf)
    table, place = case.table, case.table.column_names.index(leaf.column)
    cells = table[leaf.column].to_pylist()
    cells[1] = None
    table = table.set_column(place, leaf.column, pa.array(cells, table[leaf.column].type))
    done = worker_of(case.model(), tmp_path)(table)
    reasons = {row["row_id"]: row["__error_message"] for row in done.to_pylist() if row["__error_message"]}
    assert list(reasons) == ["r1"]
    assert leaf.column in reasons["r1"] or "NaN" in reasons["r1"]
    case.assert_rows(case.added(done), case.expected[:1] + case.expected[2:])


@SUITE.promise(
    "a value of another kind fails alone, and the reason says what was found",
    **VLLMS,
    openai="a prompt has any value as text",
    rerank="a query has any value as text",
    chat="a prompt has any value as text",
    pipeline="each task takes other kinds; test_refused.py has an image",
    python="the code decides which values it takes",
)
def test_a_value_of_another_kind_fails_alone(leaf: ModelLeaf, build: Build, tmp_path: Path) -> None:
    case = build(leaf)
    work, place = worker_of(case.model(), tmp_path), case.table.column_names.index(leaf.column)
    for value, words in leaf.wrong:
        [done] = work(case.table[:1].set_column(place, leaf.column, to_arrow([value]))).to_pylist()
        assert done["__error_message"]
        assert words in done["__error_message"]
    assert leaf.wrong


TEXT_RESULTS = "its results are texts"
NUMBERS_OF_FILE = "the file decides the type of its numbers"


@SUITE.promise(
    "half precision stays near, and comes out as float32",
    **dict.fromkeys(("chat", "image_captioning", "openai", "text_generation", "transcription"), TEXT_RESULTS),
    **dict.fromkeys(("keras", "onnx", "sklearn"), NUMBERS_OF_FILE),
    **dict.fromkeys((*BY_VLLM, "endpoint_embedding", "rerank"), NOT_HERE),
    pipeline="the pipeline decides the type of its numbers",
    python="the code decides the type of its numbers",
    object_detection="a box of half precision may be another one",
)
def test_half_precision_stays_near(leaf: ModelLeaf, build: Build, tmp_path: Path) -> None:
    case = build(leaf, leaf.half)
    done, differs = worker_of(case.model(dtype="bfloat16"), tmp_path)(case.table), []
    for row, wanted in zip(case.added(done), case.expected, strict=True):
        for name, value in wanted.items():
            if np.asarray(value).dtype.kind == "f" and name not in ("top_confidences", "twice"):
                assert np.asarray(row[name], np.float32) == pytest.approx(np.asarray(value), abs=0.3)
                differs.append(np.abs(np.asarray(row[name]) - np.asarray(value)).max() > 0)
    assert any(differs)
    assert {value.dtype for column in done.itercolumns() for value in _arrays(column)} <= {np.dtype(np.float32)}


def _arrays(column: pa.ChunkedArray) -> list[np.ndarray]:
    """The arrays that a model made; inputs are uint8 or have four numbers."""
    values = to_numpy(column) if column.type == TENSOR else np.empty(0)
    return [value for value in values if value.dtype.kind == "f" and value.shape != (4,)]


def with_calls(model: Predictor, monkeypatch: pytest.MonkeyPatch, around: Callable[[Any], Any]) -> Predictor:
    """Replace the model's function by `around` of it."""
    load = type(model).load_with
    monkeypatch.setattr(type(model), "load_with", lambda self, place: around(load(self, place)))
    return model


@SUITE.promise("a result is taken as of its return, whatever the model does with its memory later", **VLLMS)
def test_memory_of_results_may_be_used_again(
    leaf: ModelLeaf, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiling(predict: Any) -> Any:
        arrays: list[np.ndarray] = []

        def spoiled(batch: Any) -> Any:
            for array in arrays:
                array[...] = np.zeros((), array.dtype)
            returned = predict(batch)
            columns = returned.columns if isinstance(returned, Outcome) else returned
            made = {name: np.array(v) if isinstance(v, np.ndarray) else v for name, v in columns.items()}
            arrays.extend(value for value in made.values() if isinstance(value, np.ndarray))
            return Outcome(made, failed=returned.failed) if isinstance(returned, Outcome) else made

        return spoiled

    case = build(leaf)
    case.assert_rows(case.results(worker_of(with_calls(case.model(batch_size=2), monkeypatch, spoiling), tmp_path)))


@SUITE.promise(
    "a model of PyTorch computes where PyTorch finds the accelerator that its worker reserves",
    **dict.fromkeys((*BY_VLLM, "openai", "endpoint_embedding", "rerank"), NOT_HERE),
    onnx="onnxruntime finds its devices by itself; test_onnx.py has its providers",
    sklearn="it has no devices",
    python="the code decides where it computes",
)
def test_a_model_computes_where_it_reserves(leaf: ModelLeaf, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's meta device takes models and data as an accelerator does, and only gives nothing back."""
    case = build(leaf, leaf.half or None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("meta"))
    for reserves in ({"resources": {"NPU": 1}}, {"num_gpus": 0.5}):
        model = case.model(**reserves)
        names = model.inputs() or case.table.column_names
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            model.load()({name: model.given(name, case.table[name]) for name in names})


@SUITE.promise("a call that is too large for the memory is made smaller", **VLLMS)
def test_a_call_that_is_too_large_is_made_smaller(
    leaf: ModelLeaf, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = build(leaf)

    def short(predict: Any) -> Any:
        def limited(batch: Any) -> Any:
            if len(next(iter(batch.values()))) == len(case.table):
                raise MemoryError
            return predict(batch)

        return limited

    case.assert_rows(case.results(worker_of(with_calls(case.model(batch_size=99), monkeypatch, short), tmp_path)))


@SUITE.promise("a call that a passing fault ends is made again", **VLLMS)
def test_a_passing_fault_costs_no_row(
    leaf: ModelLeaf, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry.time, "sleep", lambda seconds: None)
    faults = [ConnectionResetError("reset by peer")]

    def interrupted(predict: Any) -> Any:
        def first_fails(batch: Any) -> Any:
            if faults:
                raise faults.pop()
            return predict(batch)

        return first_fails

    case = build(leaf)
    case.assert_rows(case.results(worker_of(with_calls(case.model(), monkeypatch, interrupted), tmp_path)))
    assert not faults
