"""How often a call is tried, and how long the waits between its tries are: one formula for every loop.

What may be tried again, and who is to blame in the end, differs from loop to loop: each decides that for itself.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

MOST_STEPS = 64  # a server may ask for any number of tries, and a float has an end


@dataclass(frozen=True)
class RetryPolicy:
    """Waits that grow from the first to the longest, each times a random factor between the two of `jitter`.

    The random factor keeps callers apart that failed together. From 0 on it also lets one of many rivals go first.
    `growth`: each wait is so many times the one before. `max_tries`: None if the caller's time decides.
    """

    max_tries: int | None
    first_wait_seconds: float
    longest_wait_seconds: float
    jitter: tuple[float, float] = (0.5, 1.5)
    growth: float = 2.0

    def wait_seconds(self, failed_tries: int) -> float:
        """Return how long to wait after so many tries, 1 or more, have failed."""
        grown = self.first_wait_seconds * self.growth ** min(failed_tries - 1, MOST_STEPS)
        return min(self.longest_wait_seconds, grown) * random.uniform(*self.jitter)

    def waits(self) -> Iterator[float]:
        """Yield the seconds between one try and the next: one wait fewer than there are tries."""
        tries = itertools.count(1) if self.max_tries is None else range(1, self.max_tries)
        return (self.wait_seconds(failed) for failed in tries)
