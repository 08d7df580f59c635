"""How often a call is tried, and how long the waits between its tries are: one formula for every loop.

What may be tried again, and who is to blame in the end, differs from loop to loop: each decides that for itself.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

MOST_DOUBLINGS = 32  # a server may ask for any number of tries, and a float has an end


@dataclass(frozen=True)
class RetryPolicy:
    """Waits that double from the first to the longest, each times a random factor between the two of `jitter`.

    The factor keeps callers apart that failed together. From 0 on it also lets one of many rivals go first.
    """

    max_tries: int
    first_wait_seconds: float
    longest_wait_seconds: float
    jitter: tuple[float, float] = (0.5, 1.5)

    def wait_seconds(self, failed_tries: int) -> float:
        """Return how long to wait after so many tries, 1 or more, have failed."""
        doubled = self.first_wait_seconds * 2 ** min(failed_tries - 1, MOST_DOUBLINGS)
        return min(self.longest_wait_seconds, doubled) * random.uniform(*self.jitter)

    def waits(self) -> Iterator[float]:
        """Yield the seconds between one try and the next: one wait fewer than there are tries."""
        return (self.wait_seconds(failed) for failed in range(1, self.max_tries))
