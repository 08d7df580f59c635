"""How many rows a staged part has."""

import numpy as np

SECONDS_A_PART = 60.0
ROWS_A_PART, MOST_ROWS_A_PART = 5_000, 50_000  # where nothing was measured, and at most
BYTES_A_PART = 128 * 2**20  # in memory, which a worker's results fill many times over where rows are wide


def rows_per_part(seconds_per_row: float | None, bytes_per_row: float) -> int:
    """Return rows that take about a minute, so that a crash costs minutes; without a measurement, a few thousand.

    They are no more than Ray holds back for a writer, which waits for all rows of a part: both would wait forever.
    Rows that are larger or slower than those measured count as several, see `padding.py`.

    Args:
        seconds_per_row: The workers' time for a row; None if it was not measured.
        bytes_per_row: A row's bytes in memory; 0 if there was none.
    """
    count = float(np.clip(SECONDS_A_PART / seconds_per_row, 1, MOST_ROWS_A_PART)) if seconds_per_row else ROWS_A_PART
    return max(int(min(count, BYTES_A_PART / bytes_per_row if bytes_per_row else count)), 1)
