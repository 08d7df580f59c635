"""The moments at which the tests kill, drawn from one seed.

Each kill is printed, and pytest's summary lists all kills with the seed. The environment variable `CHAOS_SEED` sets the
seed, so that a test draws again what it drew before:

    CHAOS_SEED=4711 make chaos PYTEST_ARGS="-k kills"
"""

import os
import random
import time
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))


class Moments:
    """What one test draws, whatever the other tests draw. `kills` has a line for each kill."""

    def __init__(self, test: str, seed: int = SEED) -> None:
        self.kills: list[str] = []
        self._test = test
        self._chance = random.Random(f"{seed} {test}")
        self._began = time.monotonic()

    def number(self, least: int, most: int) -> int:
        """Return a drawn number, both ends included."""
        return self._chance.randint(least, most)

    def seconds(self, least: float, most: float) -> float:
        return self._chance.uniform(least, most)

    def one_of(self, things: Sequence[T]) -> T:
        return self._chance.choice(things)

    def in_order(self, things: Sequence[T]) -> list[T]:
        """Return all things in a drawn order."""
        return self._chance.sample(things, len(things))

    def record(self, what: str, staged: int | None = None) -> None:
        """Print what is killed, stopped or cut off now, and how many parts are staged."""
        parts = "" if staged is None else f", {staged} parts staged"
        line = f"{self._test}: {what} after {time.monotonic() - self._began:.1f} s{parts}"
        self.kills.append(line)
        print(line, flush=True)
