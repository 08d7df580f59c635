"""Overlapping ranges, held against a plain list of rows."""

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.state.overlaps import cut, first_cover

ranges = st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 40))


def arrays(found: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    unit, start, length = np.array(found, np.int64).reshape(-1, 3).T
    return unit, start, start + length


@given(st.lists(ranges, max_size=30))
def test_each_row_goes_to_the_first_range_that_holds_it(found: list[tuple[int, int, int]]):
    naive: dict[tuple[int, int], int] = {}
    for index, (unit, start, length) in enumerate(found):
        for row in range(start, start + length):
            naive.setdefault((unit, row), index)
    pieces = list(zip(*(column.tolist() for column in cut(*arrays(found))), strict=True))
    rows = [((unit, row), index) for unit, start, stop, index in pieces for row in range(start, stop)]
    assert dict(rows) == naive
    assert len(rows) == len(naive)
    assert pieces == sorted(pieces)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60)), max_size=40))
def test_the_first_interval_over_a_place_is_found(found: list[tuple[int, int]]):
    low, length = np.array(found, np.int64).reshape(-1, 2).T
    covers = [
        next((i for i, (start, count) in enumerate(found) if start <= place < start + count), len(found))
        for place in range(120)
    ]
    assert first_cover(low, low + length, 120).tolist() == covers


def test_ranges_that_all_overlap_do_not_multiply():
    # Twenty parts of which each holds all of one unit, and one with every second row: cut at each other's bounds, these
    # would be 8 million pieces.
    count = 200_000
    start = np.concatenate([np.arange(0, 2 * count, 2), np.arange(20)])
    stop = np.concatenate([np.arange(1, 2 * count, 2), np.full(20, 2 * count)])
    began = time.perf_counter()
    unit, start, stop, index = cut(np.zeros(len(start), np.int64), start, stop)
    assert time.perf_counter() - began < 60
    assert len(unit) == 2 * count
    assert (stop - start).sum() == 2 * count
    assert sorted(np.unique(index[index >= count]).tolist()) == [count]
