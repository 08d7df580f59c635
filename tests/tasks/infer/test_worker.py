"""The model's worker: batches of the size asked for, rows that it prepares itself, and the trial before the stream."""

import time
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from tasks import rows
from tasks.infer.predictor import Batch, Predict, Predictor
from tasks.infer.task import rows_a_task
from tasks.infer.trial import Trying
from tasks.infer.worker import PreparingWorker, Worker
from tasks.preprocess.derive_columns import DeriveColumns
from tasks.preprocess.run_steps import run_steps
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run


class Counting(Predictor):
    """Adds the size of its batch. Calls of more than `most` rows are out of memory; small ones pay for the call."""

    kind: Literal["counting"] = "counting"
    most: int = 1000

    def load(self) -> Predict:
        def predict(batch: Batch) -> dict:
            count = len(batch["x"])
            if count > self.most:
                raise MemoryError(f"no room for {count} rows")
            time.sleep(0.03)  # what a call costs, whatever its size
            return {"count": np.full(count, count), "sum": batch["x"] + 1}

        return predict


def block(count: int) -> pa.Table:
    return source_block(0, 0, pa.table({"row_id": [f"a#{i}" for i in range(count)], "x": np.arange(count)}))


def counts(tables: list[pa.Table]) -> list[int]:
    return [found for table in tables for found in table["count"].to_pylist()]


def test_a_task_of_many_rows_goes_to_the_model_in_batches(tmp_path: Path) -> None:
    worker = Worker(Counting(batch_size=4), make_run(tmp_path), "", True, [], [])
    assert counts(list(worker(block(10)))) == [4] * 8 + [2] * 2


def test_rows_that_a_worker_prepares_come_in_batches_all_the_same(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    steps = (DeriveColumns(columns={"x": "x * 10"}),)

    def prepare(table: pa.Table):
        for start in range(0, len(table), 3):
            yield from run_steps(table[start : start + 3], steps, run, 0)

    settings = {"prefix": "", "drop_heavy": True, "earlier": [], "keep": []}
    worker = PreparingWorker(prepare, predictor=Counting(batch_size=4), run=run, **settings)
    made = list(worker(block(10)))
    assert counts(made) == [4] * 8 + [2] * 2
    assert rows.joined(made)["sum"].to_pylist() == [10 * x + 1 for x in range(10)]
    assert rows.joined(made)["__row"].to_pylist() == list(range(10))


def test_the_trial_takes_the_largest_batch_that_pays_and_fits(tmp_path: Path) -> None:
    run, sample = make_run(tmp_path), block(8)
    assert Trying(Counting(), run).on(sample).batch_size >= 32
    assert Trying(Counting(most=20), run).on(sample).batch_size == 16
    assert Trying(Counting(batch_size=4), run).on(sample).batch_size is None
    assert Trying(Counting(), run).on(block(0)) is None


def test_the_trial_measures_memory_of_its_own_process(tmp_path: Path) -> None:
    assert 50 * 2**20 < Trying(Counting(batch_size=4), make_run(tmp_path)).on(block(8)).memory < 8 * 2**30


@pytest.mark.parametrize("asked", [{"workers": 2}, {"num_gpus": 1}, {"num_cpus": 1}, {"resources": {"NPU": 1}}])
def test_a_worker_a_cpu_leaves_nothing_to_ask_for(asked: dict) -> None:
    with pytest.raises(ValidationError, match=f"gives every CPU a worker. Leave out {next(iter(asked))}"):
        Counting(prepare="beside", **asked)


@pytest.mark.parametrize(
    ("rows_per_call", "seconds", "most", "expected"),
    [
        *((16, 0.003, 512, 320), (16, 2.0, 512, 16), (64, 0.0001, 512, 512), (1024, 0.0001, 512, 1024)),
        *((32, None, 512, 32), (20, 0.003, 40, 40), (20, 0.003, 10, 20), (20, 0.0001, 10_000, 500)),
    ],
)
def test_a_task_is_as_many_calls_as_fill_a_second(rows_per_call: int, seconds: float | None, most: int, expected: int):
    assert rows_a_task(rows_per_call, seconds, most) == expected
