"""The record of settled rows, held against a plain set of rows."""

import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.rows import blocks
from overnight.tasks.rows.blocks import END, FILTERED, LIVE, QUARANTINED
from overnight.tasks.state import row_ranges
from overnight.tasks.state.manifest import UNITS

UNIT_ROWS = 30
STATES = [LIVE, FILTERED, QUARANTINED]
Ranges = list[tuple[int, int, int, int]]  # unit, start, stop, state


def table(*ranges: tuple[int, int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(row_ranges.RANGES.names, r, strict=True)) for r in ranges], row_ranges.RANGES)


def manifest(*counts: int | None, first: int = 0) -> pa.Table:
    unit = {"path": "p", "uri": "u", "size": 1, "version": "v", "first_row": first, "row_group": None}
    return pa.Table.from_pylist([unit | {"unit": i, "rows": count} for i, count in enumerate(counts)], schema=UNITS)


def ranges_of(found: list[tuple[int, int, int]]) -> pa.Table:
    """The ranges of a block with these (unit, row, state), as the stream has them."""
    units, numbers, states = (list(values) for values in zip(*found, strict=True)) if found else ([], [], [])
    plain = blocks.with_hidden(pa.table({"row_id": [""] * len(found)}), np.array(units, np.int64), np.array(numbers))
    place = plain.column_names.index("__state")
    return row_ranges.ranges_of(plain.set_column(place, "__state", pa.array(states, pa.int8())))


def expand(ranges: pa.Table) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """(unit, row) and (state, part) of every row; a row in two ranges comes twice."""
    columns = [ranges[name].to_pylist() for name in ("unit", "start", "stop", "state", "part")]
    return [
        ((unit, number), (state, part))
        for unit, start, stop, state, part in zip(*columns, strict=True)
        if state != END
        for number in range(start, stop)
    ]


part_rows = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, UNIT_ROWS - 1)), st.sampled_from(STATES), max_size=60
)


long_ranges = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 50), st.integers(1, 60), st.sampled_from(STATES)))


@given(st.lists(long_ranges, max_size=6), st.dictionaries(st.integers(0, 2), st.integers(0, 60)), st.randoms())
def test_of_overlapping_parts_the_first_wins_row_by_row_whatever_their_order_and_rows_staged_again_count_once(
    parts: list[list], ends: dict[int, int], draw: Any
):
    tables, naive = [], {}
    for index, part in enumerate(parts):
        found = {}
        for unit, start, length, state in part:
            found.update({(unit, row): state for row in range(start, start + length)})
        for place, state in found.items():
            naive.setdefault(place, (state, index))
        ended = [(unit, count, END) for unit, count in ends.items()]  # each part says it, like a task run again
        rows = [(*place, state) for place, state in found.items()]
        draw.shuffle(rows)
        tables.append(ranges_of([*rows, *rows[:5], *ended]))
    merged = row_ranges.merge(tables)
    expanded = expand(merged)
    assert dict(expanded) == naive
    assert len(expanded) == len(naive)
    ranged = row_ranges.ranges_only(merged)
    assert END not in ranged["state"].to_pylist()
    assert len(merged) - len(ranged) == merged["state"].to_pylist().count(END)
    bounds = list(zip(ranged["unit"].to_pylist(), ranged["start"].to_pylist(), strict=True))
    assert bounds == sorted(bounds)
    for state in STATES:
        assert row_ranges.rows_in_state(merged, state) == sum(found == state for found, _ in naive.values())


@given(
    st.lists(part_rows, max_size=5), st.lists(st.none() | st.integers(0, UNIT_ROWS), min_size=3, max_size=3), part_rows
)
def test_counts_agree_with_a_set_of_rows(parts: list[dict], expected: list[int | None], ended: dict):
    ends = {unit: number for unit, number in ended if expected[unit] is None}
    tables = [ranges_of([(*place, state) for place, state in part.items()]) for part in parts]
    tables.append(ranges_of([(unit, number, END) for unit, number in ends.items()]))
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


@pytest.mark.parametrize(
    ("units", "ranges", "unsettled", "doubled"),
    [
        # A gap is not made up for by a row that the unit has not.
        (manifest(10), [(0, 0, 9, LIVE), (0, 10, 11, LIVE)], [0], [0]),
        # The rows of a row group are counted from where it begins.
        (manifest(10, first=100), [(0, 100, 110, LIVE)], [], []),
        (manifest(10, first=100), [(0, 0, 10, LIVE)], [0], [0]),
        # An end gives the rows of a unit that was not counted, and stands for none of them.
        (manifest(None, None, None, 4), [(0, 0, 3, LIVE), (0, 0, 3, END), (1, 0, 5, LIVE), (2, 0, 0, END)], [1, 3], []),
        (manifest(2, None), [], [0, 1], []),
        (manifest(), [], [], []),
    ],
)
def test_units_with_rows_that_are_missing_or_too_many_are_named(
    units: pa.Table, ranges: Ranges, unsettled: list[int], doubled: list[int]
):
    totals = row_ranges.count(units, row_ranges.merge([table(*ranges)] if ranges else []))
    assert (totals.unsettled_units.tolist(), totals.doubled_units.tolist()) == (unsettled, doubled)


def test_rows_settled_twice_are_told_and_ends_come_first():
    doubled = table((0, 0, 10, LIVE), (0, 3, 4, FILTERED)).append_column("part", pa.array([0, 1], pa.int32()))
    assert row_ranges.count(manifest(10), doubled).doubled_units.tolist() == [0]
    merged = row_ranges.merge([table((0, 0, 3, LIVE), (0, 0, 3, END), (2, 0, 0, END))])
    assert merged["state"].to_pylist() == [END, END, LIVE]
    assert row_ranges.rows_of_units(manifest(None, None, None, 4), merged).tolist() == [3, -1, 0, 4]


@given(part_rows, part_rows)
def test_inside_agrees_with_a_set_of_rows(found: dict, asked: dict):
    ranges = ranges_of([(*place, state) for place, state in found.items()])
    places = np.array(list(asked), np.int64).reshape(-1, 2)
    inside = row_ranges.inside(places[:, 0], places[:, 1], ranges)
    assert inside.tolist() == [place in found for place in asked]


def test_many_ranges_are_merged_in_seconds_and_do_not_multiply_where_all_overlap():
    """As a filter leaves them that drops every second row of one large CSV file, below twenty parts with all its rows.

    Cut at each other's bounds, these would be 8 million pieces.
    """
    numbers = np.arange(200_000)
    states = np.where(numbers % 2, LIVE, FILTERED).astype(np.int8)
    scattered = pa.table([np.zeros_like(numbers), numbers, numbers + 1, states], schema=row_ranges.RANGES)
    odd = scattered.filter(pa.array(states == LIVE))
    started = time.perf_counter()
    assert len(row_ranges.merge([scattered, scattered.slice(100_000), table((0, 0, 200_000, END))])) == 200_001
    merged = row_ranges.merge([odd, *[table((0, 0, 200_000, FILTERED))] * 20])
    assert time.perf_counter() - started < 60
    assert len(merged) == 200_000
    assert np.unique(merged["part"].to_numpy()).tolist() == [0, 1]
    assert not len(row_ranges.count(manifest(200_000), merged).unsettled_units)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), max_size=20), st.data())
def test_rows_follow_from_ranges_if_each_live_source_row_is_one_of_them(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    others = data.draw(st.dictionaries(st.tuples(st.just(2), st.integers(0, 5)), st.sampled_from(STATES[1:])))
    lost = data.draw(st.sampled_from([*rows, None]))
    ranges = ranges_of([*((*row, LIVE) for row in rows if row != lost), *((*row, s) for row, s in others.items())])
    units, numbers = (np.array(each, np.int64) for each in (zip(*rows, strict=True) if rows else ((), ())))
    ordered = row_ranges.in_row_order(units, numbers, ranges)
    if lost is not None or len(set(rows)) < len(rows):
        assert ordered is None
        return
    assert ordered is not None
    assert [list(each) for each in row_ranges.rows_of(ordered)] == [units.tolist(), numbers.tolist()]
    assert expand(row_ranges.merge([ordered])) == expand(row_ranges.merge([ranges]))


def test_an_order_that_needs_many_more_ranges_than_the_rows_have_is_not_kept() -> None:
    count = row_ranges.MOST_RUNS + 1
    backwards = np.arange(count)[::-1]
    assert row_ranges.in_row_order(np.zeros(count, int), backwards, table((0, 0, count, LIVE))) is None
    kept = row_ranges.in_row_order(np.zeros(count - 1, int), backwards[1:], table((0, 0, count - 1, LIVE)))
    assert kept is not None
    assert len(kept) == count - 1
