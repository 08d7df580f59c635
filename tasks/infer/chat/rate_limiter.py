"""So much a minute, evenly: requests, or the tokens that they take."""

import asyncio
import time


class RateLimiter:
    """Lets amounts through one after the other; what passed in any minute is `per_minute` and the last amount."""

    def __init__(self, per_minute: float | None) -> None:
        """None: no limit."""
        self._seconds_each = 60 / per_minute if per_minute else 0.0
        self._next = 0.0  # when the next amount may pass

    async def wait(self, amount: float = 1) -> None:
        """Returns when it is this amount's turn, in the order of calls."""
        at = max(self._next, time.monotonic())
        self._next = at + amount * self._seconds_each
        if (seconds := at - time.monotonic()) > 0:
            await asyncio.sleep(seconds)

    def correct(self, difference: float) -> None:
        """An amount that passed was larger than was told, by `difference`."""
        self._next += difference * self._seconds_each
