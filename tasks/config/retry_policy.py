"""How often a call is tried, and how long the waits between its tries are: one formula for every loop."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

MOST_STEPS = 64  # a server may return any number of tries, and a float has a maximum


@dataclass(frozen=True)
class RetryPolicy:
    """The number of tries, and waits that grow from the first to the longest by the factor `growth`."""

    max_tries: int | None  # with the first one; None: the caller decides when to stop
    first_wait_seconds: float
    longest_wait_seconds: float
    # The bounds of a random factor, which separates callers that failed together; from 0, one of many can go first.
    jitter: tuple[float, float] = (0.5, 1.5)
    growth: float = 2.0

    def wait_seconds(self, failed_tries: int) -> float:
        """Return the seconds to wait after this number of tries (1 or more) has failed."""
        wait = self.first_wait_seconds * self.growth ** min(failed_tries - 1, MOST_STEPS)
        return min(self.longest_wait_seconds, wait) * random.uniform(*self.jitter)

    def waits(self) -> Iterator[float]:
        """Yield the seconds to wait before each try after the first; without end if `max_tries` is None."""
        tries = itertools.count(1) if self.max_tries is None else range(1, self.max_tries)
        return map(self.wait_seconds, tries)
