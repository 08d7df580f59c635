"""Orders of reading: permutations, decided by the seed alone."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.shuffle.order import NoShuffle, ShuffleBlocks, ShuffleFiles, ShuffleRows
from overnight.tasks.state.read_plan import PENDING, pack

SEEDED = [ShuffleFiles, ShuffleBlocks, ShuffleRows]


def units(files: int, groups: int = 3) -> pa.Table:
    """`files` files of `groups` row groups each."""
    same = {"uri": "u", "size": 2**20, "version": "v", "first_row": 0, "rows": 5, "settled": None}
    rows = [
        {**same, "unit": unit, "path": f"{unit // groups:05d}.parquet", "row_group": unit % groups}
        for unit in range(files * groups)
    ]
    return pa.Table.from_pylist(rows, schema=PENDING)


@pytest.mark.parametrize("kind", SEEDED)
def test_the_seed_decides_and_nothing_else(kind: type):
    for files in (0, 1, 2, 60):
        assert sorted(kind().order(units(files)).tolist()) == list(range(files * 3)), "every unit comes once"
    pending = units(60)
    first = kind(seed=1).order(pending).tolist()
    assert first == kind(seed=1).order(pa.concat_tables([pending[:7], pending[7:]])).tolist()
    assert first != kind(seed=2).order(pending).tolist()
    assert first != list(range(180))


def test_the_order_of_a_seed_is_the_same_in_every_release_and_none_keeps_the_listing():
    assert ShuffleFiles(seed=7).order(units(6, groups=1)).tolist() == [2, 4, 1, 5, 3, 0]
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
