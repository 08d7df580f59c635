"""How units are packed into blocks, and what a read task finds of them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overnight.tasks.state.read_plan import (
    MAXIMUM_BLOCKS,
    MINIMUM_BLOCKS,
    PENDING,
    TARGET_BLOCK_BYTES,
    pack,
    read_block,
    read_order,
    read_quarantined,
    read_summaries,
)
from overnight.tasks.storage.location import Location
from tests.tasks.manifests import write_order

sizes = st.lists(st.one_of(st.integers(0, 10), st.integers(0, 50 * 2**20)), max_size=200)


def pending(count: int, settled: dict[int, list[int]] | None = None, rows: int | None = 7) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "unit": i, "path": f"{i}.csv", "uri": f"/in/{i}.csv", "size": i, "version": "v", "first_row": 0,
                "rows": rows, "row_group": None, "settled": (settled or {}).get(i),
            }
            for i in range(count)
        ],
        schema=PENDING,
    )  # fmt: skip


@given(sizes)
def test_blocks_are_runs_of_consecutive_units_numbered_without_a_gap(units: list[int]):
    blocks = pack(np.array(units, np.int64))
    assert len(blocks) == len(units)
    assert np.all(np.diff(blocks, prepend=0) <= 1)
    assert np.all(np.diff(blocks) >= 0)
    assert not len(units) or blocks[0] == 0


@given(sizes)
@example([1] * 300 + [20 * 2**20] * 100)
@example([100 * 2**20] + [2**10] * 500)
@example([2**20 * (i % 7) for i in range(400)])
def test_no_block_is_a_straggler(units: list[int]):
    blocks = pack(np.array(units, np.int64))
    weights = np.maximum(units, 1)
    wanted = np.clip(weights.sum() / TARGET_BLOCK_BYTES, min(MINIMUM_BLOCKS, len(units)), MAXIMUM_BLOCKS)
    for block in np.unique(blocks):
        inside = weights[blocks == block]
        # A block is at most its even share and one unit more; what one unit brings cannot be split.
        assert inside.sum() <= weights.sum() / int(wanted) * 1.001 + inside.max()


@pytest.mark.parametrize("count", [1, 5, 16, 100])
def test_few_units_are_spread_over_as_many_blocks_as_help(count: int):
    assert len(np.unique(pack(np.full(count, 1000)))) == min(count, MINIMUM_BLOCKS)


def test_the_number_of_blocks_is_bounded():
    assert len(np.unique(pack(np.full(100_000, 2**20)))) == MAXIMUM_BLOCKS
    assert len(np.unique(pack(np.full(1000, 2**20)))) == 1000 * 2**20 // TARGET_BLOCK_BYTES


def test_a_block_holds_its_units_as_they_were_given(tmp_path):
    order, units = Location(str(tmp_path)) / "deep" / "order", pending(10, {3: [0, 2, 5, 6]})
    write_order(order, units, np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2]))
    assert [read_block(order, block)["unit"].to_pylist() for block in range(3)] == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    assert read_block(order, 1)["settled"].to_pylist() == [[0, 2, 5, 6], None, None, None]
    assert read_order(order).cast(PENDING).equals(units)


def test_summaries_tell_what_is_left_to_read(tmp_path):
    order = Location(str(tmp_path)) / "order"
    write_order(order, pending(4, {1: [0, 2, 5, 6]}), np.array([0, 0, 1, 1]))
    assert read_summaries(order) == [(7 + 7 - 3, 0 + 1), (14, 2 + 3)]
    write_order(order, pending(2, rows=None), np.array([0, 1]))
    assert read_summaries(order) == [(None, 0), (None, 1)]


def test_the_order_tells_how_many_rows_were_quarantined_before(tmp_path):
    order = Location(str(tmp_path)) / "order"
    write_order(order, pending(2), np.array([0, 1]), quarantined=5)
    assert read_quarantined(order) == 5
    write_order(order, pending(0), np.empty(0, np.int64))
    assert read_quarantined(order) == 0


def test_nothing_pending_is_no_block(tmp_path):
    order = Location(str(tmp_path)) / "order"
    write_order(order, pending(0), pack(np.empty(0, np.int64)))
    assert read_summaries(order) == []
    assert len(read_order(order)) == 0


def test_an_order_written_again_replaces_the_first(tmp_path):
    order = Location(str(tmp_path)) / "order"
    write_order(order, pending(4), np.array([0, 0, 1, 1]))
    write_order(order, pending(4).take([3, 1, 2, 0]), np.array([0, 1, 2, 3]))
    assert read_order(order)["unit"].to_pylist() == [3, 1, 2, 0]
    assert len(read_summaries(order)) == 4
