"""How many rows a staged part has."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from overnight.tasks.rows.padding import LARGEST_BLOCK_BYTES, Share

ROWS_A_PART, MOST_ROWS_A_PART = 5_000, 50_000  # where nothing was measured, and at most
BYTES_A_PART = 128 * 2**20  # in memory, which a worker's results fill many times over where rows are wide


@dataclass(frozen=True)
class PartSize:
    """The job's settings for staged parts: `rows`, or as many rows as take the workers `seconds` if it is None."""

    rows: int | None
    seconds: float

    def count(self, seconds_per_row: float | None, bytes_per_row: float) -> int:
        """Return the rows of a part: by time, so that a crash costs minutes; a few thousand if nothing was measured.

        They are no more than Ray holds back for a writer, which waits for all rows of a part: both would wait forever.
        Rows that are larger or slower than those measured count as several, see `padding.py`.

        Args:
            seconds_per_row: The workers' time for a row; None if it was not measured.
            bytes_per_row: A row's bytes in memory; 0 if there was none.
        """
        if self.rows:
            return self.rows
        count = float(np.clip(self.seconds / seconds_per_row, 1, MOST_ROWS_A_PART)) if seconds_per_row else ROWS_A_PART
        return max(int(min(count, BYTES_A_PART / bytes_per_row if bytes_per_row else count)), 1)

    @property
    def longest(self) -> float:
        """Return the time after which a Ray task passes on what it has, in seconds; infinite if `rows` decides."""
        return math.inf if self.rows else self.seconds / 3  # the rest is for the writer

    def share(self, count: int, workers: Mapping[str, int], full: int = LARGEST_BLOCK_BYTES) -> Share:
        """Return what is passed on to a writer as one part: `count` rows, or what stages do in the part's time.

        Args:
            workers: Stage -> its number of workers.
            full: The bytes of a block that Ray Data passes on immediately.
        """
        seconds = {} if self.rows else {stage: self.seconds * number for stage, number in workers.items()}
        return Share(count, BYTES_A_PART, seconds, self.longest, full)
