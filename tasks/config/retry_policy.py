"""How often a call is tried, and how long the waits between its tries are: one formula for every loop.

Loops differ in the errors that they retry and in the error that they raise in the end. Each loop decides that itself.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

MOST_DOUBLINGS = 32  # a server may return any number of tries, and a float has a maximum


@dataclass(frozen=True)
class RetryPolicy:
    """Waits that double from the first to the longest, each times a random factor between the two values of `jitter`.

    The factor separates callers that failed together. If it starts at 0, one of many rivals can go first.
    """

    max_tries: int
    first_wait_seconds: float
    longest_wait_seconds: float
    jitter: tuple[float, float] = (0.5, 1.5)

    def wait_seconds(self, failed_tries: int) -> float:
        """Return how long to wait after this number of tries (1 or more) has failed."""
        doubled = self.first_wait_seconds * 2 ** min(failed_tries - 1, MOST_DOUBLINGS)
        return min(self.longest_wait_seconds, doubled) * random.uniform(*self.jitter)

    def waits(self) -> Iterator[float]:
        """Yield the seconds between one try and the next: one wait fewer than tries."""
        return (self.wait_seconds(failed) for failed in range(1, self.max_tries))
