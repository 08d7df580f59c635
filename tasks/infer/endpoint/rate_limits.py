"""Limits per minute: what the headers of a response show of them, and the delay of requests that keeps to them.

OpenAI, Azure, Groq, Anthropic and Mistral send what remains of a limit, and most of them the time until all of it is
there again. The limit may be a window of time, or refill steadily: a pace of `remaining` in that time suits both.
"""

import asyncio
import contextlib
import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import httpx

Unit = Literal["requests", "tokens"]
PerMinute = float | Literal["auto"] | None

SECONDS_OF_A_LIMIT = 60.0  # of one whose headers have no time, and the longest wait for one with nothing left
REMAINING: dict[Unit, tuple[str, ...]] = {
    "requests": (
        "x-ratelimit-remaining-requests",
        "anthropic-ratelimit-requests-remaining",
        "x-ratelimit-remaining-req-minute",
    ),
    "tokens": (
        "x-ratelimit-remaining-tokens",
        "anthropic-ratelimit-tokens-remaining",
        "x-ratelimit-remaining-tokens-minute",
    ),
}
RESET = ("x-ratelimit-reset-{}", "anthropic-ratelimit-{}-reset")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?")


@dataclass(frozen=True)
class Allowance:
    """What remains of a limit, and the seconds until all of it is there again; None if no header has them."""

    remaining: float
    seconds: float | None


class RateLimiter:
    """Delays callers, so that amounts such as a request's tokens pass evenly over the minute. None sets no limit.

    A minute may exceed `per_minute` by its last amount, because an amount passes as a whole. `auto` has the
    pace of the latest response. Each of the `workers` takes an equal share.
    """

    def __init__(self, unit: Unit, per_minute: PerMinute, workers: int = 1) -> None:
        self._unit, self._workers, self._is_auto = unit, workers, per_minute == "auto"
        self._seconds_each = 0.0
        if isinstance(per_minute, float | int):
            self._seconds_each = 60 * workers / per_minute
        self._most = math.inf  # a larger amount takes no longer
        self._next = 0.0  # when the next amount may pass

    async def wait(self, amount: float = 1) -> None:
        """Wait until `amount` may pass, after the amounts of earlier calls."""
        start = max(self._next, time.monotonic())
        self._next = start + min(amount, self._most) * self._seconds_each
        if (seconds := start - time.monotonic()) > 0:
            await asyncio.sleep(seconds)

    def correct(self, difference: float) -> None:
        """Correct the amount of an earlier call: it was larger by `difference`, or smaller if this is negative."""
        self._next += difference * self._seconds_each

    def learn(self, headers: "httpx.Headers | Mapping[str, str]") -> None:
        """Take the pace from the headers of a response, if it is automatic and they have one."""
        allowance = allowance_of(headers, self._unit) if self._is_auto else None
        if allowance is None:
            return
        seconds = SECONDS_OF_A_LIMIT
        if allowance.seconds is not None:
            seconds = min(allowance.seconds, SECONDS_OF_A_LIMIT)
        self._most = max(allowance.remaining, 1.0)
        self._seconds_each = seconds * self._workers / self._most
        if allowance.remaining < 1:
            self._next = max(self._next, time.monotonic() + seconds)


def allowance_of(headers: "httpx.Headers | Mapping[str, str]", unit: Unit) -> Allowance | None:
    """Return what the headers of a response show of a limit; None if they have nothing of it."""
    remaining = _first(_number(headers.get(name, "")) for name in REMAINING[unit])
    if remaining is None:
        return None
    return Allowance(remaining, _first(_duration(headers.get(name.format(unit), "")) for name in RESET))


def seconds_to_wait(headers: "httpx.Headers | Mapping[str, str]") -> float | None:
    """Return the seconds that the server requires as a wait; None if its headers have no time.

    Without a Retry-After, the reset of each limit counts that has nothing left.
    """
    retry_after = headers.get("retry-after", "")
    parts = [retry_after] if "GMT" in retry_after else retry_after.split(",")
    waits = [*map(_retry_after, parts), _number(headers.get("retry-after-ms", ""), 1000)]
    if waits.count(None) == len(waits):
        for unit in REMAINING:
            allowance = allowance_of(headers, unit)
            if allowance and allowance.remaining == 0:
                waits.append(allowance.seconds)
    return max((seconds for seconds in waits if seconds is not None), default=None)


def _first(values: Iterable[float | None]) -> float | None:
    return next((value for value in values if value is not None), None)


def _retry_after(value: str) -> float | None:
    """Return the seconds of a number or a date."""
    seconds = _number(value)
    if seconds is None:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0)


def _number(value: str, per_second: float = 1) -> float | None:
    try:
        number = float(value) / per_second
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _duration(value: str) -> float | None:
    """Return the seconds of `1.5`, of a duration such as `6m0s` or `200ms`, or until `2026-11-29T08:00:00Z`."""
    value, number = value.strip(), _number(value)
    if number is not None or not value:
        return number
    if parts := _DURATION.fullmatch(value):
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in parts.groups())
        return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    with contextlib.suppress(ValueError):
        return max(datetime.fromisoformat(value).timestamp() - time.time(), 0.0)
    return None
