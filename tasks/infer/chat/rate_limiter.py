"""A limit per minute for requests, or for their tokens, spread evenly over the minute."""

import asyncio
import time


class RateLimiter:
    """Delays callers, so that amounts such as a request's tokens pass evenly. None sets no limit.

    A minute may exceed `per_minute` by its last amount, because an amount passes as a whole.
    """

    def __init__(self, per_minute: float | None) -> None:
        self._seconds_each = 60 / per_minute if per_minute else 0.0
        self._next = 0.0  # when the next amount may pass

    async def wait(self, amount: float = 1) -> None:
        """Wait until `amount` may pass, after the amounts of earlier calls."""
        start = max(self._next, time.monotonic())
        self._next = start + amount * self._seconds_each
        if (seconds := start - time.monotonic()) > 0:
            await asyncio.sleep(seconds)

    def correct(self, difference: float) -> None:
        """Correct the amount of an earlier call: it was larger by `difference`, or smaller if this is negative."""
        self._next += difference * self._seconds_each
