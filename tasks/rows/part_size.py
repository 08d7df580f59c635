"""The number of rows in a staged part."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from overnight.tasks.rows.padding import LARGEST_BLOCK_BYTES, Share

ROWS_A_PART = 5_000  # if nothing was measured
BYTES_A_PART = 128 * 2**20  # in memory, which a worker's results fill many times over where rows are wide
HIDDEN_BYTES = 80  # of a row in a block, besides its own columns


@dataclass(frozen=True)
class PartSize:
    """The job's settings for the size of staged parts.

    A part has `rows` rows. If `rows` is None, it has the rows that the workers finish in `seconds`.
    """

    rows: int | None
    seconds: float

    def count(self, seconds_per_row: float | None, bytes_per_row: float) -> int:
        """Return the number of rows of a part, which is `rows` if that is set.

        Otherwise it follows from `seconds`, so that a crash costs only minutes of work. It is `ROWS_A_PART` if nothing
        was measured. The part then has at most `BYTES_A_PART`, because a writer waits for all rows of its part. If Ray
        could not hold these for the writer, both would wait forever.

        Args:
            seconds_per_row: The workers' time for one row; None if it was not measured.
            bytes_per_row: The bytes of one row in memory; 0 if no row was measured.
        """
        if self.rows:
            return self.rows
        count = self.seconds / seconds_per_row if seconds_per_row else ROWS_A_PART
        return max(int(min(count, BYTES_A_PART / (bytes_per_row + HIDDEN_BYTES))), 1)

    @property
    def longest(self) -> float:
        """Return the seconds after which a Ray task passes on its finished rows; infinite if `rows` is set."""
        return math.inf if self.rows else self.seconds / 3  # the rest is for the writer

    def share(self, count: int, workers: Mapping[str, int], full: int = LARGEST_BLOCK_BYTES) -> Share:
        """Return the amount that Ray Data passes on to a writer as one part.

        Args:
            count: The number of rows of a part. Fewer rows are passed on if a stage's workers took `seconds` for them.
            workers: Stage -> its number of workers.
            full: The bytes of a block that Ray Data passes on immediately.
        """
        seconds = {} if self.rows else {stage: self.seconds * number for stage, number in workers.items()}
        return Share(count, BYTES_A_PART, seconds, self.longest, full)
