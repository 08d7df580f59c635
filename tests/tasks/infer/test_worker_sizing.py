"""How much a worker is handed at once, and what the plan's artifact says about it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.python import PythonPredictor
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from overnight.tasks.infer.trial import Trial
from overnight.tasks.infer.worker_sizing import Choice, explanation, rows_a_block, rows_a_task
from overnight.tasks.resources.planner import make_plan
from overnight.tasks.rows import blocks
from tests.tasks.blocks import source_block


@pytest.mark.parametrize(
    ("rows_per_call", "seconds", "most", "expected"),
    [
        *((16, 0.003, 512, 320), (16, 2.0, 512, 16), (64, 0.0001, 512, 512), (1024, 0.0001, 512, 1024)),
        *((32, None, 512, 32), (20, 0.003, 40, 40), (20, 0.003, 10, 20), (20, 0.0001, 512, 500)),
    ],
)
def test_a_task_is_as_many_calls_as_fill_a_second(rows_per_call: int, seconds: float | None, most: int, expected: int):
    assert rows_a_task(rows_per_call, seconds, 5.0, most) == expected


@pytest.mark.parametrize(("seconds_a_worker", "expected"), [(20, 320), (30, 496), (60, 656), (math.inf, 656)])
def test_a_long_run_has_longer_tasks(seconds_a_worker: float, expected: int) -> None:
    assert rows_a_task(16, 0.003, seconds_a_worker, 4096) == expected


@pytest.mark.parametrize(
    ("rows_per_call", "seconds", "expected"),
    [(5, 1.0, 5), (1, 0.5, 4), (16, 0.05, 32), (16, 0.004, None), (16, None, None), (512, 0.01, 512), (1, 1000.0, 1)],
)
def test_only_a_slow_models_blocks_are_cut(rows_per_call: int, seconds: float | None, expected: int | None) -> None:
    assert rows_a_block(rows_per_call, seconds) == expected


def test_it_says_what_a_row_costs_where_it_is_prepared_and_what_a_worker_gets() -> None:
    sample = source_block(0, 0, pa.table({"row_id": ["a", "b"], "x": [1, 2]}))
    sample = blocks.measured(sample, np.arange(2), "preprocess", 0.004, 0)
    written = PythonPredictor(target="my_models:Digits")
    plan = make_plan([written], [{"CPU": 4}], {})
    [pool] = plan.pools
    trial = Trial(0.001, 2**30, pa.schema([]))
    found = explanation(plan, [Choice(Link(written), pool, trial, 320)], sample, True, False)
    assert found["a row costs, measured on a sample"] == "0.00 ms to read, 2.00 ms to prepare, 1.00 ms python"
    assert found["rows are prepared"] == "in the model's workers (placement: colocated)"
    assert found["rows are read"].startswith("in Ray tasks of 0.1 CPU")
    assert found["workers"] == "1 to 4, 4 at first"
    assert found["memory of a worker"] == "1.00 GiB, measured"
    assert found["batch size"] == "16, more while a row then costs less"
    assert found["work per task"] == "320 rows"
    assert "one per CPU" in found["note 1"]


ONE_ROW = source_block(0, 0, pa.table({"row_id": ["a"]}))


def test_it_says_when_memory_holds_fewer_workers_than_there_are_cpus() -> None:
    model = PythonPredictor(target="m:A")
    plan = make_plan([model], [{"CPU": 4}], {})
    fewer = Choice(Link(model), replace(plan.pools[0], maximum=2), None, 8)
    found = explanation(plan, [fewer], ONE_ROW, False, False)
    assert "memory holds fewer workers" in found["rows are prepared"]


def test_two_models_are_told_apart_and_what_the_job_pins_is_said_to_be_so() -> None:
    models = [PythonPredictor(target="m:A", name="a", batch_size=8), PythonPredictor(target="m:B", name="b")]
    plan = make_plan(models, [{"CPU": 4}], {})
    choices = [Choice(Link(model), pool, None, 8) for model, pool in zip(models, plan.pools, strict=True)]
    found = explanation(plan, choices, ONE_ROW, False, False)
    assert found["a: batch size"] == "8, from the job file"
    assert found["b: batch size"] == "16, more while a row then costs less"
    assert found["b: memory of a worker"] == "not measured: no row passed"
    assert "nothing known of b" in found["a row costs, measured on a sample"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "texts that fill 2,048 tokens, of 512 sorted by length, by default"),
        ({"num_gpus": 1}, "texts that fill 65,536 tokens, of 2048 sorted by length, by default"),
        ({"batch_size": 8}, "8 texts, of 256 sorted by length, from the job file"),
    ],
)
def test_texts_come_in_batches_of_as_many_tokens(settings: dict[str, Any], expected: str) -> None:
    model = TextEmbedding(model="minilm", text_column="text", **settings)
    plan = make_plan([model], [{"CPU": 4, "GPU": 1}], {})
    found = explanation(plan, [Choice(Link(model), plan.pools[0], None, 8)], ONE_ROW, False, False)
    assert found["batch size"] == expected
