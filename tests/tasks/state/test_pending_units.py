"""What a resume leaves to read, held against a plain set of rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges
from overnight.tasks.state.manifest import UNITS, read_manifest
from overnight.tasks.state.pending_units import pending_tables, unfinished_units, units_left
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.storage.location import Location

UNIT_COUNT, UNIT_ROWS, FIRST_ROW = 7, 12, 100
STATES = [blocks.LIVE, blocks.FILTERED, blocks.QUARANTINED]

part_rows = st.dictionaries(
    st.tuples(st.integers(0, UNIT_COUNT - 1), st.integers(0, UNIT_ROWS - 1)), st.sampled_from(STATES), max_size=80
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manifests")


def ranges(part: dict[tuple[int, int], int], ends: dict[int, int]) -> pa.Table:
    found = [(unit, row + FIRST_ROW, state) for (unit, row), state in part.items()]
    found += [(unit, count, blocks.END) for unit, count in ends.items()]
    columns = np.array(found, np.int64).reshape(-1, 3).T
    return row_ranges.ranges_of(pa.table(list(columns), names=["__unit", "__row", "__state"]))


@given(
    st.lists(part_rows, max_size=4),
    st.lists(st.none() | st.integers(1, UNIT_ROWS), min_size=UNIT_COUNT, max_size=UNIT_COUNT),
    st.dictionaries(st.integers(0, UNIT_COUNT - 1), st.integers(0, UNIT_ROWS)),
)
def test_what_is_left_and_what_is_skipped_add_up_to_the_manifest(
    place: Path, parts: list[dict], counts: list[int | None], ends: dict[int, int]
):
    ends = {unit: count for unit, count in ends.items() if counts[unit] is None}
    known = [ends.get(unit) if count is None else count for unit, count in enumerate(counts)]
    parts = [
        {(unit, row): state for (unit, row), state in part.items() if row < (known[unit] or UNIT_ROWS)}
        for part in parts
    ]
    unit = {"uri": "u", "size": 1, "version": "v", "first_row": FIRST_ROW, "row_group": None}
    units = pa.Table.from_pylist(
        [unit | {"unit": i, "path": f"{i}", "rows": count} for i, count in enumerate(counts)], schema=UNITS
    )
    manifest = Location(str(place)) / "manifest"
    pq.write_table(units.replace_schema_metadata({"inputs": "d"}), manifest.uri, row_group_size=3)
    read, _ = read_manifest(manifest, ["first_row", "rows"])
    assert read.column_names == ["first_row", "rows"]
    merged = row_ranges.merge([*(ranges(part, {}) for part in parts), ranges({}, ends)])
    pending = pa.concat_tables([PENDING.empty_table(), *pending_tables(manifest, *units_left(read, merged))])

    done = {place for part in parts for place in part}
    left = {unit for unit, count in enumerate(known) if count is None or {(unit, row) for row in range(count)} - done}
    assert pending.schema.equals(PENDING)
    assert pending["unit"].to_pylist() == sorted(left)
    assert pending.select(UNITS.names).equals(units.take(sorted(left)))
    for number, skipped in zip(pending["unit"].to_pylist(), pending["settled"].to_pylist(), strict=True):
        bounds = skipped or []
        assert bounds == sorted(set(bounds))  # ranges that meet are one, so no bound comes twice
        assert skipped != []
        found = {row for low, high in zip(bounds[::2], bounds[1::2], strict=True) for row in range(low, high)}
        assert found == {row + FIRST_ROW for unit, row in done if unit == number}


def test_rows_that_end_differently_side_by_side_are_skipped_as_one_range():
    numbers = np.arange(1000)
    skipped = unfinished_units(np.array([4]), np.full(1000, 4), numbers, numbers + 1)
    assert skipped.to_pylist() == [[0, 1000]]
