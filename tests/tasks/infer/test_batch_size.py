"""How many rows a call gets: more while a row then costs less, and fits."""

from collections.abc import Callable

import pytest

from overnight.tasks.infer import batch_size as batch_module
from overnight.tasks.infer.batch_size import CALLS, BatchSize


def sizes_of(cost: Callable[[int], float], first: int = 16, calls: int = 100) -> tuple[list[int], BatchSize]:
    """The sizes that a worker tries, in order, if a row of a call costs so many seconds."""
    batch, tried = BatchSize(first, True, "by default"), [first]
    for _ in range(calls):
        if batch.measure(batch.rows, batch.rows * cost(batch.rows)):
            tried.append(batch.rows)
    return tried, batch


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (lambda rows: 1 / rows, [16, 32, 64, 128, 256, 512, 512]),
        (lambda rows: 0.1, [16, 32, 64, 16]),
        (lambda rows: 0.1 if rows < 64 else 0.05 + rows / 1e4, [16, 32, 64, 128, 256, 64]),
        (lambda rows: 0.1 - rows / 1e5, [16, 32, 64, 16]),
    ],
    ids=["always cheaper", "never", "at 64", "hardly"],
)
def test_it_doubles_up_to_twice_beyond_the_best_and_goes_back_to_that(
    cost: Callable[[int], float], expected: list[int]
) -> None:
    tried, batch = sizes_of(cost)
    assert tried == expected
    assert batch.rows == expected[-1], "the search has ended"
    assert f"{1000 * cost(batch.rows):.2f} ms a row" in batch.reason


def test_calls_of_other_sizes_and_a_slow_first_call_do_not_count() -> None:
    batch = BatchSize(16, True, "by default")
    assert not batch.measure(5, 0.1)
    assert [batch.measure(16, seconds) for seconds in [9.0] + [1.6] * (CALLS - 1)] == [False] * (CALLS - 1) + [True]
    assert batch.rows == 32
    assert "16 rows at a time took 100.00 ms a row" in batch.reason


def test_a_call_that_is_too_large_for_the_memory_ends_the_search_with_half_of_its_rows() -> None:
    batch = BatchSize(16, True, "by default")
    batch.reduce(16)
    assert (batch.rows, batch.reason) == (8, "out of memory with 16 rows")
    assert not batch.measure(8, 1.0)


def test_it_stays_where_twice_as_many_rows_might_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter(range(0, 2**60, 2**50))
    monkeypatch.setattr(batch_module, "_peak_memory", lambda: next(peaks))
    tried, batch = sizes_of(lambda rows: 1 / rows)
    assert tried == [16, 16]
    assert "might not fit" in batch.reason


def test_a_size_that_the_job_sets_stays() -> None:
    batch = BatchSize(40, False, "from the job file")
    assert not any(batch.measure(40, 1 / n) for n in range(1, 10))
    assert (batch.rows, batch.reason) == (40, "from the job file")
