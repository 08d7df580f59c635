"""What may be published."""

import pyarrow as pa
import pytest

from tasks import rows, settled
from tasks.errors import CheckFailed
from tasks.manifest import UNITS
from tasks.write.audit import audit
from tasks.write.checks import Checks


def units(*counts: int | None) -> pa.Table:
    unit = {"uri": "u", "size": 1, "version": "v", "first_row": 0, "row_group": None}
    listed = [unit | {"unit": i, "path": f"{i}.csv", "rows": count} for i, count in enumerate(counts)]
    return pa.Table.from_pylist(listed, schema=UNITS)


def merged(*ranges: tuple[int, int, int, int]) -> pa.Table:
    table = pa.Table.from_pylist([dict(zip(settled.RANGES.names, r, strict=True)) for r in ranges], settled.RANGES)
    return settled.merge([table])


def test_totals_of_a_partition_that_is_whole():
    found = merged((0, 0, 5, rows.LIVE), (0, 5, 7, rows.FILTERED), (1, 0, 1, rows.QUARANTINED), (1, 0, 1, rows.END))
    totals = audit(units(7, None), found, Checks(max_quarantined=0.2), "where")
    assert (totals.rows, totals.written, totals.filtered, totals.quarantined) == (8, 5, 2, 1)


@pytest.mark.parametrize(
    ("counts", "found", "message"),
    [
        (
            [5, 5],
            [(0, 0, 5, rows.LIVE), (1, 0, 4, rows.LIVE)],
            r"1 units are not settled, the first in 1\.csv.*in where",
        ),
        ([5], [], r"not settled, the first in 0\.csv"),
        ([None], [(0, 0, 5, rows.LIVE)], "not settled"),
        ([5], [(0, 0, 6, rows.LIVE)], "settled more than once"),
        ([5], [(0, 0, 4, rows.LIVE), (0, 7, 8, rows.LIVE)], "not settled"),
    ],
)
def test_what_is_not_settled_exactly_once_is_refused(counts: list, found: list, message: str):
    with pytest.raises(CheckFailed, match=message):
        audit(units(*counts), merged(*found), Checks(), "where")


def test_quarantine_is_measured_against_the_source_rows():
    found = merged((0, 0, 99, rows.LIVE), (0, 99, 100, rows.QUARANTINED))
    assert audit(units(100), found, Checks(), "where").quarantined == 1
    found = merged((0, 0, 98, rows.LIVE), (0, 98, 100, rows.QUARANTINED))
    with pytest.raises(CheckFailed, match=r"2 of 100 rows are quarantined, 1 are allowed \(0\.01\).*where/\*\.errors"):
        audit(units(100), found, Checks(), "where")


@pytest.mark.parametrize(
    ("fraction", "total", "limit"), [(0.01, 99, 0), (0.01, 100, 1), (0.29, 100, 29), (1, 7, 7), (0, 9, 0)]
)
def test_a_fraction_of_the_rows_is_never_rounded_up(fraction: float, total: int, limit: int):
    assert Checks(max_quarantined=fraction).quarantine_limit(total) == limit


def test_too_few_rows_are_refused_and_an_empty_partition_is_not():
    with pytest.raises(CheckFailed, match=r"expected at least 1 rows, found 0 .5 filtered"):
        audit(units(5), merged((0, 0, 5, rows.FILTERED)), Checks(), "where")
    assert audit(units(5), merged((0, 0, 5, rows.FILTERED)), Checks(min_rows=0), "where").written == 0
    assert audit(units(), merged(), Checks(), "where").rows == 0
