"""A limit per minute for requests, or for their tokens, spread evenly over the minute."""

import asyncio
import time


class RateLimiter:
    """Delays amounts, such as a request's tokens: any minute has at most `per_minute`, plus the last amount."""

    def __init__(self, per_minute: float | None) -> None:
        """Set the limit; None means no limit."""
        self._seconds_each = 60 / per_minute if per_minute else 0.0
        self._next = 0.0  # when the next amount may pass

    async def wait(self, amount: float = 1) -> None:
        """Wait until `amount` may pass. Amounts pass in the order of the calls."""
        at = max(self._next, time.monotonic())
        self._next = at + amount * self._seconds_each
        if (seconds := at - time.monotonic()) > 0:
            await asyncio.sleep(seconds)

    def correct(self, difference: float) -> None:
        """Correct an amount that has passed: it was larger than announced by `difference`, which may be negative."""
        self._next += difference * self._seconds_each
