"""The rows of one call of a model, found while the stream runs: twice as many, as long as a row then costs less."""

import math
import os
import resource

import psutil

LARGEST = 512
CALLS = 3  # per size; the fastest counts, because the first call selects kernels by shape
WORTH_IT = 0.03  # the share by which a row must be cheaper
SIZES_BEYOND = 2  # larger sizes to try after one that was not better: the next one may be


class BatchSize:
    """The rows of the next call, as `rows`. The search of one worker begins at `first` rows.

    `reason` is a phrase for the receipt. Unless `is_searched`, only a call that is out of memory changes the size.
    """

    def __init__(self, first: int, is_searched: bool, reason: str) -> None:
        self.rows, self.reason = first, reason
        self._is_searched = is_searched and first < LARGEST
        self._best, self._seconds = first, math.inf  # per row
        self._calls: list[float] = []
        self._memory = _peak_memory()

    def measure(self, rows: int, seconds: float) -> bool:
        """Take the seconds of a call of `rows` rows. Return True if the size or its reason changed."""
        if not self._is_searched or rows != self.rows:
            return False
        self._calls.append(seconds / rows)
        if len(self._calls) < CALLS:
            return False
        cost, self._calls = min(self._calls), []
        if cost < self._seconds * (1 - WORTH_IT):
            self._best, self._seconds = rows, cost
        share = psutil.virtual_memory().available / (os.cpu_count() or 1)  # with a worker on each CPU
        if 2 * rows > min(LARGEST, self._best * 2**SIZES_BEYOND):
            self._end(f"{1000 * self._seconds:.2f} ms a row; more rows at a time were not cheaper")
        elif 2 * (_peak_memory() - self._memory) >= share:
            self._end(f"{1000 * self._seconds:.2f} ms a row; more rows at a time might not fit into the memory")
        else:
            self.rows = 2 * rows
            self.reason = f"the search had not ended: {rows} rows at a time took {1000 * cost:.2f} ms a row"
        return True

    def reduce(self, rows: int) -> None:
        """End the search, because the memory was too small for a call of `rows` rows. Half of them remain."""
        self._best = rows // 2
        self._end(f"out of memory with {rows} rows")

    def _end(self, reason: str) -> None:
        self.rows, self.reason, self._is_searched = self._best, reason, False


def _peak_memory() -> int:
    """Return the most bytes of memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if os.uname().sysname == "Linux" else 1)
