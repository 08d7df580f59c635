"""Every source row is settled exactly once, or nothing is published."""

from pathlib import Path

import pyarrow as pa
import pytest

from overnight.tasks.errors import CheckFailed
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges
from overnight.tasks.state.manifest import UNITS
from overnight.tasks.write.publish.audit import audit
from tests.tasks.manifests import write_manifest
from tests.tasks.runs import make_run


def units(*counts: int | None) -> pa.Table:
    unit = {"uri": "u", "size": 1, "version": "v", "first_row": 0, "row_group": None}
    listed = [unit | {"unit": i, "path": f"{i}.csv", "rows": count} for i, count in enumerate(counts)]
    return pa.Table.from_pylist(listed, schema=UNITS)


def merged(*ranges: tuple[int, int, int, int]) -> pa.Table:
    rows = [dict(zip(row_ranges.RANGES.names, values, strict=True)) for values in ranges]
    return row_ranges.merge([pa.Table.from_pylist(rows, row_ranges.RANGES)])


def test_totals_of_a_partition_that_is_whole(tmp_path: Path):
    found = merged(
        (0, 0, 5, blocks.LIVE), (0, 5, 7, blocks.FILTERED), (1, 0, 1, blocks.QUARANTINED), (1, 0, 1, blocks.END)
    )
    totals = audit(units(7, None), found, make_run(tmp_path))
    assert (totals.rows, totals.written, totals.filtered, totals.quarantined) == (8, 5, 2, 1)


@pytest.mark.parametrize(
    ("counts", "found", "message"),
    [
        ([5, 5], [(0, 0, 5, blocks.LIVE), (1, 0, 4, blocks.LIVE)], r"1 units are not settled, .* 1\.csv.*/parts"),
        ([5], [], r"not settled, the first in 0\.csv"),
        ([None], [(0, 0, 5, blocks.LIVE)], "not settled"),
        ([5], [(0, 0, 6, blocks.LIVE)], "settled more than once"),
        ([5], [(0, 0, 4, blocks.LIVE), (0, 7, 8, blocks.LIVE)], "not settled"),
    ],
)
def test_what_is_not_settled_exactly_once_is_refused(tmp_path: Path, counts: list, found: list, message: str):
    run = make_run(tmp_path)
    write_manifest(run.manifest, units(*counts), "digest", None)
    with pytest.raises(CheckFailed, match=message):
        audit(units(*counts), merged(*found), run)
