"""A limit per minute, spread evenly: for requests, or their tokens."""

import asyncio
import time


class RateLimiter:
    """Lets amounts pass one after another; in any minute they sum to at most `per_minute` plus the last amount."""

    def __init__(self, per_minute: float | None) -> None:
        """Set the limit; None: no limit."""
        self._seconds_each = 60 / per_minute if per_minute else 0.0
        self._next = 0.0  # when the next amount may pass

    async def wait(self, amount: float = 1) -> None:
        """Return when it is this amount's turn, in the order of calls."""
        at = max(self._next, time.monotonic())
        self._next = at + amount * self._seconds_each
        if (seconds := at - time.monotonic()) > 0:
            await asyncio.sleep(seconds)

    def correct(self, difference: float) -> None:
        """Correct the amount that passed: it was larger than announced, by `difference`."""
        self._next += difference * self._seconds_each
