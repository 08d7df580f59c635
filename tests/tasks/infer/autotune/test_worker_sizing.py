"""How much a worker is handed at once, and how long the stream takes for a row."""

import math

import pytest

from overnight.tasks.infer.autotune.worker_sizing import rows_a_block, rows_a_task


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
