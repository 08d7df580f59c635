"""How units are packed into blocks and ordered again, and what a read task finds of them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overnight.tasks.shuffle.order import NoShuffle, ShuffleBlocks, ShuffleFiles
from overnight.tasks.state import read_plan
from overnight.tasks.state.read_plan import (
    MAXIMUM_BLOCKS,
    MINIMUM_BLOCKS,
    PENDING,
    TARGET_BLOCK_BYTES,
    pack,
    read_block,
    read_earlier,
    read_order,
    read_positions,
    read_summaries,
    reorder,
)
from overnight.tasks.storage.location import Location
from tests.tasks.manifests import write_order


def pending(count: int, settled: dict[int, list[int]] | None = None, rows: int | None = 7) -> pa.Table:
    unit = {"version": "v", "first_row": 0, "rows": rows, "row_group": None}
    units = [
        unit | {"unit": i, "path": f"{i}.csv", "uri": f"/in/{i}.csv", "size": i, "settled": (settled or {}).get(i)}
        for i in range(count)
    ]
    return pa.Table.from_pylist(units, schema=PENDING)


@pytest.fixture
def order(tmp_path: Path) -> Location:
    return Location(str(tmp_path)) / "deep" / "order"


@given(st.lists(st.one_of(st.integers(0, 10), st.integers(0, 50 * 2**20)), max_size=200))
@example([1] * 300 + [20 * 2**20] * 100)
@example([100 * 2**20] + [2**10] * 500)
@example([2**20 * (i % 7) for i in range(400)])
def test_blocks_are_consecutive_units_numbered_without_a_gap_and_none_is_a_straggler(units: list[int]):
    blocks = pack(np.array(units, np.int64))
    assert len(blocks) == len(units)
    assert set(np.diff(blocks)) <= {0, 1}
    assert not len(units) or blocks[0] == 0
    weights = np.maximum(units, 1)
    wanted = np.clip(weights.sum() / TARGET_BLOCK_BYTES, min(MINIMUM_BLOCKS, len(units)), MAXIMUM_BLOCKS)
    for block in np.unique(blocks):
        inside = weights[blocks == block]
        # A block is at most its even share and one unit more; what one unit brings cannot be split.
        assert inside.sum() <= weights.sum() / int(wanted) * 1.001 + inside.max()


@pytest.mark.parametrize(
    ("count", "size", "blocks"),
    [
        *((count, 1000, min(count, MINIMUM_BLOCKS)) for count in (1, 5, 16, 100)),
        (1000, 2**20, 1000 * 2**20 // TARGET_BLOCK_BYTES),
        (100_000, 2**20, MAXIMUM_BLOCKS),
    ],
)
def test_the_number_of_blocks_grows_with_the_bytes_between_bounds(count: int, size: int, blocks: int):
    assert len(np.unique(pack(np.full(count, size)))) == blocks


def test_a_block_holds_its_units_as_they_were_given(order: Location):
    units = pending(10, {3: [0, 2, 5, 6]})
    write_order(order, units, np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2]))
    assert [read_block(order, block)["unit"].to_pylist() for block in range(3)] == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    assert read_block(order, 1)["settled"].to_pylist() == [[0, 2, 5, 6], None, None, None]
    assert read_order(order).cast(PENDING).equals(units)
    assert read_order(order, ["unit", "size"]).to_pydict() == {"unit": [*range(10)], "size": [*range(10)]}
    assert read_positions(order, np.array([1, 2, 7]))["unit"].to_pylist() == [1, 2, 7]


def test_summaries_tell_what_is_left_to_read(order: Location):
    write_order(order, pending(4, {1: [0, 2, 5, 6]}), np.array([0, 0, 1, 1]), quarantined=5)
    assert (read_summaries(order), read_earlier(order)) == ([(7 + 7 - 3, 0 + 1), (14, 2 + 3)], (3, 5))
    write_order(order, pending(2, rows=None), np.array([0, 1]))
    assert (read_summaries(order), read_earlier(order)) == ([(None, 0), (None, 1)], (0, 0))


def test_an_order_written_again_replaces_the_first_and_nothing_pending_is_no_block(order: Location):
    write_order(order, pending(4), np.array([0, 0, 1, 1]))
    write_order(order, pending(4).take([3, 1, 2, 0]), np.array([0, 1, 2, 3]))
    assert read_order(order)["unit"].to_pylist() == [3, 1, 2, 0]
    assert len(read_summaries(order)) == 4
    write_order(order, pending(0), pack(np.empty(0, np.int64)))
    assert (len(read_order(order)), read_summaries(order)) == (0, [])


def units(count: int, is_known: bool = True) -> pa.Table:
    """Units of files of three each, some of them half settled."""
    source = np.random.default_rng(count)
    return pa.Table.from_pylist(
        [
            {
                "unit": unit * 2, "path": f"{unit // 3}.x", "uri": f"u{unit}", "size": int(source.integers(0, 2**22)),
                "version": f"v{unit}", "first_row": unit % 3 * 10, "rows": 10 if is_known or unit % 7 else None,
                "row_group": unit % 3, "settled": [unit % 3 * 10, unit % 3 * 10 + 4] if unit % 5 == 0 else None,
            }
            for unit in range(count)
        ],
        schema=PENDING,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shuffle", "units_at_once", "is_known"),
    [
        (NoShuffle(), 7, True),
        (ShuffleFiles(seed=3), 1, True),
        (ShuffleFiles(seed=3), 7, False),
        (ShuffleBlocks(seed=3), 7, True),
        (ShuffleBlocks(seed=3), 1000, False),
    ],
)
def test_it_is_what_all_units_at_once_would_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: ShuffleFiles, units_at_once: int, is_known: bool
):
    monkeypatch.setattr(read_plan, "UNITS_AT_ONCE", units_at_once)
    place, plain, pending = Location(f"{tmp_path}/order"), Location(f"{tmp_path}/plain"), units(60, is_known)
    write_order(place, pending, pack(pending["size"].to_numpy()), quarantined=5)
    assert reorder(place, shuffle) is False
    ordered = pending.take(shuffle.order(pending))
    write_order(plain, ordered, pack(ordered["size"].to_numpy()))
    assert read_order(place).cast(PENDING).equals(read_order(plain).cast(PENDING))
    assert read_summaries(place) == read_summaries(plain)
    assert read_earlier(place).quarantined == 5


@pytest.mark.parametrize("count", [0, 1, 10])
def test_rows_that_are_units_by_themselves_are_told(tmp_path: Path, count: int):
    place = Location(f"{tmp_path}/order")
    pending = units(count).set_column(6, "rows", pa.array([1] * count, pa.int64()))
    write_order(place, pending, pack(pending["size"].to_numpy()))
    assert reorder(place, ShuffleFiles(seed=1))
    assert sorted(read_order(place)["unit"].to_pylist()) == pending["unit"].to_pylist()


def test_blocks_do_not_depend_on_how_many_units_are_packed_at_once(monkeypatch: pytest.MonkeyPatch):
    sizes = np.random.default_rng(0).integers(0, 2**24, 5000)
    whole = pack(sizes)
    assert len(np.unique(whole)) > 1000
    for count in (7, 999, 5000):
        monkeypatch.setattr(read_plan, "UNITS_AT_ONCE", count)
        assert pack(sizes).tolist() == whole.tolist()
