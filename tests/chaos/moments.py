"""The moments at which the tests kill, drawn from one seed.

A plugin of pytest: each kill is printed, and pytest's summary lists all kills with the seed. The environment variable
`CHAOS_SEED` sets the seed, so that a test draws again what it drew before:

    CHAOS_SEED=4711 make chaos PYTEST_ARGS="-k kills"
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
VARIABLE, KILL = "CHAOS_SEED", "kill"


def seed() -> int:
    """Return the seed of this test run. It is drawn once, and processes that start later inherit it."""
    os.environ[VARIABLE] = os.environ.get(VARIABLE) or str(random.SystemRandom().randrange(10**6))
    return int(os.environ[VARIABLE])


def pytest_configure() -> None:
    seed()


@pytest.fixture
def moments(request: pytest.FixtureRequest) -> Iterator["Moments"]:
    """The moments that the test draws; pytest's summary lists its kills."""
    moments = Moments(request.node.nodeid)
    yield moments
    request.node.user_properties.extend((KILL, line) for line in moments.kills)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    ended = (report for report in reports if getattr(report, "when", "") == "teardown")
    kills = [line for report in ended for name, line in report.user_properties if name == KILL]
    if kills:
        terminalreporter.section(f"kills, {VARIABLE}={seed()}")
        for line in kills:
            terminalreporter.write_line(line)


class Moments:
    """What one test draws, whatever the other tests draw. `kills` has a line for each kill."""

    def __init__(self, test: str, drawn_from: int | None = None) -> None:
        self.kills: list[str] = []
        self._test = test
        self._chance = random.Random(f"{seed() if drawn_from is None else drawn_from} {test}")
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
