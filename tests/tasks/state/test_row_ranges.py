"""The record of settled rows, held against a plain set of rows."""

import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges
from overnight.tasks.state.manifest import UNITS

UNIT_ROWS = 30
STATES = [blocks.LIVE, blocks.FILTERED, blocks.QUARANTINED]


def table(*ranges: tuple[int, int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(row_ranges.RANGES.names, r, strict=True)) for r in ranges], row_ranges.RANGES)


def manifest(*counts: int | None, first: int = 0) -> pa.Table:
    unit = {"path": "p", "uri": "u", "size": 1, "version": "v", "first_row": first, "row_group": None}
    return pa.Table.from_pylist([unit | {"unit": i, "rows": count} for i, count in enumerate(counts)], schema=UNITS)


def block(found: list[tuple[int, int, int]]) -> pa.Table:
    """A block with these (unit, row, state), as the stream has them."""
    units, numbers, states = (list(values) for values in zip(*found, strict=True)) if found else ([], [], [])
    plain = blocks.with_hidden(pa.table({"row_id": [""] * len(found)}), np.array(units, np.int64), np.array(numbers))
    return plain.set_column(plain.column_names.index("__state"), "__state", pa.array(states, pa.int8()))


def expand(ranges: pa.Table) -> list[tuple[int, int, int, int]]:
    """(unit, row, state, part) of every row; a row in two ranges comes twice."""
    columns = [ranges[name].to_pylist() for name in ("unit", "start", "stop", "state", "part")]
    return [
        (unit, number, state, part)
        for unit, start, stop, state, part in zip(*columns, strict=True)
        if state != blocks.END
        for number in range(start, stop)
    ]


part_rows = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, UNIT_ROWS - 1)), st.sampled_from(STATES), max_size=60
)


@given(part_rows, st.randoms())
def test_ranges_name_every_row_once_whatever_their_order(found: dict, draw):
    listed = [(unit, number, state) for (unit, number), state in found.items()] * 2
    draw.shuffle(listed)
    first = {}
    for unit, number, state in listed:
        first.setdefault((unit, number), state)
    ranges = row_ranges.merge([row_ranges.ranges_of(block(listed))])
    assert {(unit, number): state for unit, number, state, _ in expand(ranges)} == first
    assert len(expand(ranges)) == len(first)


@given(st.lists(part_rows, max_size=6))
def test_of_overlapping_parts_the_first_wins_row_by_row(parts: list[dict]):
    merged = row_ranges.merge(
        [row_ranges.ranges_of(block([(*place, state) for place, state in part.items()])) for part in parts]
    )
    naive: dict[tuple[int, int], tuple[int, int]] = {}
    for index, part in enumerate(parts):
        for place, state in part.items():
            naive.setdefault(place, (state, index))
    found = expand(merged)
    assert {(unit, number): (state, part) for unit, number, state, part in found} == naive
    assert len(found) == len(naive)
    bounds = list(zip(merged["unit"].to_pylist(), merged["start"].to_pylist(), strict=True))
    assert bounds == sorted(bounds)


long_ranges = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 50), st.integers(1, 60), st.sampled_from(STATES)))


@given(st.lists(long_ranges, max_size=6), st.dictionaries(st.integers(0, 2), st.integers(0, 60)))
def test_whole_units_and_long_runs_staged_again_count_once(parts: list[list], ends: dict[int, int]):
    tables, naive = [], {}
    for index, part in enumerate(parts):
        found = {}
        for unit, start, length, state in part:
            found.update({(unit, row): state for row in range(start, start + length)})
        for place, state in found.items():
            naive.setdefault(place, (state, index))
        ended = [(unit, count, blocks.END) for unit, count in ends.items()]  # each part says it, like a task run again
        tables.append(row_ranges.ranges_of(block([*((*place, state) for place, state in found.items()), *ended])))
    merged = row_ranges.merge(tables)
    rows_found = {(unit, number): (state, part) for unit, number, state, part in expand(merged)}
    assert rows_found == naive
    assert len(expand(merged)) == len(naive)
    ranged = row_ranges.ranges_only(merged)
    assert blocks.END not in ranged["state"].to_pylist()
    assert len(merged) - len(ranged) == merged["state"].to_pylist().count(blocks.END)
    for state in STATES:
        assert row_ranges.rows_in_state(merged, state) == sum(found == state for found, _ in naive.values())


@given(
    st.lists(part_rows, max_size=5), st.lists(st.none() | st.integers(0, UNIT_ROWS), min_size=3, max_size=3), part_rows
)
def test_counts_agree_with_a_set_of_rows(parts: list[dict], expected: list[int | None], ended: dict):
    ends = {unit: number for unit, number in ended if expected[unit] is None}
    tables = [row_ranges.ranges_of(block([(*place, state) for place, state in part.items()])) for part in parts]
    tables.append(row_ranges.ranges_of(block([(unit, number, blocks.END) for unit, number in ends.items()])))
    totals = row_ranges.count(manifest(*expected), row_ranges.merge(tables))

    naive: dict[tuple[int, int], int] = {}
    for part in parts:
        for place, state in part.items():
            naive.setdefault(place, state)
    counts = {unit: count if count is not None else ends.get(unit) for unit, count in enumerate(expected)}
    states = Counter(naive.values())
    assert (totals.written, totals.filtered, totals.quarantined) == tuple(states[state] for state in STATES)
    assert totals.rows == sum(count or 0 for count in counts.values())
    numbers = {unit: {number for of, number in naive if of == unit} for unit in counts}
    unsettled = [unit for unit, count in counts.items() if count is None or set(range(count)) - numbers[unit]]
    beyond = [unit for unit, count in counts.items() if count is not None and numbers[unit] - set(range(count))]
    assert totals.unsettled_units.tolist() == unsettled
    assert totals.doubled_units.tolist() == beyond


def test_a_gap_is_not_made_up_for_by_a_row_that_the_unit_has_not():
    totals = row_ranges.count(manifest(10), row_ranges.merge([table((0, 0, 9, blocks.LIVE), (0, 10, 11, blocks.LIVE))]))
    assert totals.unsettled_units.tolist() == [0]
    assert totals.doubled_units.tolist() == [0]


def test_rows_of_a_row_group_are_counted_from_where_it_begins():
    units = manifest(10, first=100)
    assert not len(row_ranges.count(units, row_ranges.merge([table((0, 100, 110, blocks.LIVE))])).unsettled_units)
    assert row_ranges.count(units, row_ranges.merge([table((0, 0, 10, blocks.LIVE))])).unsettled_units.tolist() == [0]


def test_rows_settled_twice_are_told():
    doubled = table((0, 0, 10, blocks.LIVE), (0, 3, 4, blocks.FILTERED)).append_column(
        "part", pa.array([0, 1], pa.int32())
    )
    assert row_ranges.count(manifest(10), doubled).doubled_units.tolist() == [0]


def test_an_end_gives_the_rows_of_a_unit_that_nobody_counted_and_none_leaves_it_open():
    merged = row_ranges.merge(
        [table((0, 0, 3, blocks.LIVE), (0, 0, 3, blocks.END), (1, 0, 5, blocks.LIVE), (2, 0, 0, blocks.END))]
    )
    units = manifest(None, None, None, 4)
    assert row_ranges.rows_of_units(units, merged).tolist() == [3, -1, 0, 4]
    assert row_ranges.count(units, merged).unsettled_units.tolist() == [1, 3]


def test_a_unit_s_end_does_not_stand_for_its_rows():
    merged = row_ranges.merge([table((0, 0, 3, blocks.LIVE), (0, 0, 3, blocks.END))])
    assert merged["state"].to_pylist() == [blocks.END, blocks.LIVE]


def test_nothing_staged_settles_nothing():
    merged = row_ranges.merge([])
    assert row_ranges.count(manifest(2, None), merged).unsettled_units.tolist() == [0, 1]
    assert row_ranges.count(manifest(), merged).rows == 0
    assert row_ranges.merge([row_ranges.ranges_of(block([]))]).num_rows == 0


@given(part_rows)
def test_a_record_survives_the_footer(found: dict):
    ranges = row_ranges.ranges_of(block([(*place, state) for place, state in found.items()]))
    assert row_ranges.decode(row_ranges.encode(ranges)).equals(ranges)


@given(part_rows, part_rows)
def test_inside_agrees_with_a_set_of_rows(found: dict, asked: dict):
    ranges = row_ranges.ranges_of(block([(*place, state) for place, state in found.items()]))
    places = np.array(list(asked), np.int64).reshape(-1, 2)
    inside = row_ranges.inside(places[:, 0], places[:, 1], ranges)
    assert inside.tolist() == [place in found for place in asked]


@pytest.mark.parametrize("overlapping", [False, True])
def test_many_ranges_of_one_unit_are_merged_in_seconds(overlapping: bool):
    # As a filter leaves them that drops every second row of one large CSV file.
    numbers = np.arange(200_000)
    states = np.where(numbers % 2, blocks.LIVE, blocks.FILTERED).astype(np.int8)
    ranges = pa.table([np.zeros_like(numbers), numbers, numbers + 1, states], schema=row_ranges.RANGES)
    parts = [ranges, ranges.slice(100_000)] if overlapping else [ranges]
    started = time.perf_counter()
    merged = row_ranges.merge([*parts, table((0, 0, 200_000, blocks.END))])
    assert time.perf_counter() - started < 20
    assert len(merged) == 200_001
    assert not len(row_ranges.count(manifest(None), merged).unsettled_units)


OVERLAPPING = st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 40))


def bounds(found: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    unit, start, length = np.array(found, np.int64).reshape(-1, 3).T
    return unit, start, start + length


@given(st.lists(OVERLAPPING, max_size=30))
def test_each_row_goes_to_the_first_range_that_holds_it(found: list[tuple[int, int, int]]):
    naive: dict[tuple[int, int], int] = {}
    for index, (unit, start, length) in enumerate(found):
        for row in range(start, start + length):
            naive.setdefault((unit, row), index)
    pieces = list(zip(*(column.tolist() for column in row_ranges.resolve_overlaps(*bounds(found))), strict=True))
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
    assert row_ranges._first_cover(low, low + length, 120).tolist() == covers


def test_ranges_that_all_overlap_do_not_multiply():
    # Twenty parts of which each holds all of one unit, and one with every second row: cut at each other's bounds, these
    # would be 8 million pieces.
    count = 200_000
    start = np.concatenate([np.arange(0, 2 * count, 2), np.arange(20)])
    stop = np.concatenate([np.arange(1, 2 * count, 2), np.full(20, 2 * count)])
    began = time.perf_counter()
    unit, start, stop, index = row_ranges.resolve_overlaps(np.zeros(len(start), np.int64), start, stop)
    assert time.perf_counter() - began < 60
    assert len(unit) == 2 * count
    assert (stop - start).sum() == 2 * count
    assert sorted(np.unique(index[index >= count]).tolist()) == [count]
