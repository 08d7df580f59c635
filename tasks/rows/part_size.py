"""How many rows a staged part has."""

import numpy as np

from overnight.tasks.state.stream import Sampled

SECONDS_A_PART = 60.0
ROWS_A_PART, MOST_ROWS_A_PART = 5_000, 50_000  # where nothing was measured, and at most
BYTES_A_PART = 128 * 2**20  # in memory, which a worker's results fill many times over where rows are wide


def rows_per_part(sampled: Sampled) -> int:
    """Rows that take about a minute, so that a crash costs minutes; without a measurement, a few thousand.

    And no more than Ray holds back for a writer, which waits for all rows of a part: else both would wait for ever.
    """
    seconds, size = sampled.seconds_per_row, sampled.bytes_per_row
    count = float(np.clip(SECONDS_A_PART / seconds, 1, MOST_ROWS_A_PART)) if seconds else ROWS_A_PART
    return max(int(min(count, BYTES_A_PART / size if size else count)), 1)
