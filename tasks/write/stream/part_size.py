"""The number of rows of a staged part."""

import numpy as np

from overnight.tasks.state.stream import Sampled

SECONDS_A_PART = 60.0
ROWS_A_PART, MOST_ROWS_A_PART = 5_000, 50_000  # without a measurement, and at most
BYTES_A_PART = 128 * 2**20  # in memory; wide rows would exceed it many times


def rows_per_part(sampled: Sampled) -> int:
    """Return rows that take about a minute, so that a crash costs minutes; without a measurement, a few thousand.

    They are also limited by Ray's buffer for a writer, which waits for all rows of a part: otherwise both would wait
    forever.
    """
    seconds, size = sampled.seconds_per_row, sampled.bytes_per_row
    count = float(np.clip(SECONDS_A_PART / seconds, 1, MOST_ROWS_A_PART)) if seconds else ROWS_A_PART
    return max(int(min(count, BYTES_A_PART / size if size else count)), 1)
