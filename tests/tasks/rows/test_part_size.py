"""A part has the rows of the set time, and no more than Ray holds back for a writer."""

import math

import pytest

from overnight.tasks.rows.padding import Share
from overnight.tasks.rows.part_size import BYTES_A_PART, PartSize


@pytest.mark.parametrize(
    ("seconds", "size", "expected"),
    [
        *((None, 0.0, 5_000), (0.001, 100.0, 60_000), (1e-6, 100.0, 745_654), (0.5, 100.0, 120), (100.0, 100.0, 1)),
        *((None, 300_000.0, 447), (0.001, 300_000.0, 447), (0.001, 2.0**30, 1)),
    ],
)
def test_a_part_is_a_minutes_rows_and_fits_what_ray_holds_back_for_a_writer(
    seconds: float | None, size: float, expected: int
) -> None:
    assert PartSize(rows=None, seconds=60.0).count(seconds, size) == expected


def test_the_set_seconds_decide_unless_rows_are_set() -> None:
    by_time, by_rows = PartSize(rows=None, seconds=6.0), PartSize(rows=7, seconds=6.0)
    assert (by_time.count(0.5, 100.0), by_rows.count(0.5, 100.0)) == (12, 7)
    assert by_time.share(12, {"infer": 2}) == Share(12, BYTES_A_PART, {"infer": 12.0}, 2.0)
    assert by_rows.share(7, {"infer": 2}) == Share(7, BYTES_A_PART, {}, math.inf)
