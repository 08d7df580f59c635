"""An order file written anew some units at a time is the one that holding all of them would give."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.shuffle.order import NoShuffle, ShuffleBlocks, ShuffleFiles
from overnight.tasks.state import read_plan
from overnight.tasks.state import reorder as reordering
from overnight.tasks.state.read_plan import PENDING, pack, read_order, read_quarantined, read_summaries
from overnight.tasks.state.reorder import reorder
from overnight.tasks.storage.location import Location
from tests.tasks.manifests import write_order


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
    monkeypatch.setattr(reordering, "UNITS_AT_ONCE", units_at_once)
    place, plain, pending = Location(f"{tmp_path}/order"), Location(f"{tmp_path}/plain"), units(60, is_known)
    write_order(place, pending, pack(pending["size"].to_numpy()), quarantined=5)
    assert reorder(place, shuffle) is False
    ordered = pending.take(shuffle.order(pending))
    write_order(plain, ordered, pack(ordered["size"].to_numpy()))
    assert read_order(place).cast(PENDING).equals(read_order(plain).cast(PENDING))
    assert read_summaries(place) == read_summaries(plain)
    assert read_quarantined(place) == 5


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
