"""Orders of reading: permutations, decided by the seed alone."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.shuffle.order import NoShuffle, ShuffleBlocks, ShuffleFiles, ShuffleRows
from overnight.tasks.state.read_plan import PENDING, pack

SHUFFLES = [NoShuffle, ShuffleFiles, ShuffleBlocks, ShuffleRows]


def units(files: int, groups: int = 3, size: int = 2**20) -> pa.Table:
    """`files` files of `groups` row groups each."""
    return pa.Table.from_pylist(
        [
            {
                "unit": unit, "path": f"{unit // groups:05d}.parquet", "uri": "u", "size": size, "version": "v",
                "first_row": 0, "rows": 5, "row_group": unit % groups, "settled": None,
            }
            for unit in range(files * groups)
        ],
        schema=PENDING,
    )  # fmt: skip


@pytest.mark.parametrize("kind", SHUFFLES)
@pytest.mark.parametrize("files", [0, 1, 2, 50])
def test_every_unit_comes_once(kind: type, files: int):
    assert sorted(kind().order(units(files)).tolist()) == list(range(files * 3))


@pytest.mark.parametrize("kind", SHUFFLES[1:])
def test_the_seed_decides_and_nothing_else(kind: type):
    pending = units(60)
    first = kind(seed=1).order(pending).tolist()
    assert first == kind(seed=1).order(units(60)).tolist()
    assert first != kind(seed=2).order(pending).tolist()
    assert first != list(range(180))


def test_the_order_of_a_seed_is_the_same_in_every_release():
    assert ShuffleFiles(seed=7).order(units(6, groups=1)).tolist() == [2, 4, 1, 5, 3, 0]


def test_none_keeps_the_listing():
    assert NoShuffle().order(units(4)).tolist() == list(range(12))


@pytest.mark.parametrize("kind", [ShuffleFiles, ShuffleRows])
def test_files_stay_together_and_are_read_from_beginning_to_end(kind: type):
    order = kind(seed=3).order(units(40)).reshape(40, 3)
    assert np.all(np.diff(order, axis=1) == 1)
    assert np.all(order[:, 0] % 3 == 0)


def test_blocks_stay_together_and_are_read_from_beginning_to_end():
    pending = units(100)
    order = ShuffleBlocks(seed=3).order(pending)
    block = pack(pending["size"].to_numpy())[order]
    changes = np.flatnonzero(np.diff(block)) + 1
    assert len(changes) + 1 == len(np.unique(block))
    for run in np.split(order, changes):
        assert np.all(np.diff(run) == 1)


def test_a_table_in_pieces_is_ordered_as_one_in_one_piece():
    pending = units(20)
    pieces = pa.concat_tables([pending[:7], pending[7:]])
    for kind in SHUFFLES:
        assert kind().order(pieces).tolist() == kind().order(pending).tolist()
