"""A part has a minute's rows, and no more than Ray holds back for a writer."""

import pytest

from overnight.tasks.rows.part_size import rows_per_part


@pytest.mark.parametrize(
    ("seconds", "size", "expected"),
    [
        *((None, 0.0, 5_000), (0.001, 100.0, 50_000), (0.5, 100.0, 120), (100.0, 100.0, 1)),
        *((None, 300_000.0, 447), (0.001, 300_000.0, 447), (0.001, 2.0**30, 1)),
    ],
)
def test_a_part_is_a_minutes_rows_and_fits_what_ray_holds_back_for_a_writer(
    seconds: float | None, size: float, expected: int
) -> None:
    assert rows_per_part(seconds, size) == expected
