"""A part is due after the set time, or with the set rows."""

import math

from overnight.tasks.rows.part_size import PartSize


def test_the_set_seconds_decide_unless_rows_are_set() -> None:
    by_time, by_rows = PartSize(rows=None, seconds=6.0), PartSize(rows=7, seconds=6.0)
    assert [by_time.is_due(rows, seconds) for rows, seconds in ((10**9, 1.9), (1, 2.0))] == [False, True]
    assert [by_rows.is_due(rows, seconds) for rows, seconds in ((6, 10**9), (7, 0.0))] == [False, True]
    assert (by_time.longest, by_rows.longest) == (2.0, math.inf)
