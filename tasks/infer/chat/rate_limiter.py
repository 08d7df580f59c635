"""A limit per minute for requests, or for their tokens, spread evenly over the minute."""

import asyncio
import time


class RateLimiter:
    """Delays callers, so that amounts such as a request's tokens pass evenly, at most `per_minute` in any minute.

    A minute may exceed that by its last amount, because an amount passes as a whole. None sets no limit.
    """

    def __init__(self, per_minute: float | None) -> None:
        """Set the limit; None means no limit."""
        self._seconds_each = 60 / per_minute if per_minute else 0.0
        self._next = 0.0  # when the next amount may pass

    async def wait(self, amount: float = 1) -> None:
        """Wait until `amount`, such as the tokens of a request, may pass. Amounts pass in the order of the calls."""
        at = max(self._next, time.monotonic())
        self._next = at + amount * self._seconds_each
        if (seconds := at - time.monotonic()) > 0:
            await asyncio.sleep(seconds)

    def correct(self, difference: float) -> None:
        """Correct the amount of an earlier call: it was larger by `difference`, or smaller if this is negative."""
        self._next += difference * self._seconds_each
