"""The headers of limits per minute, and the pace of requests under them."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from overnight.tasks.infer.endpoint.rate_limits import Allowance, RateLimiter, allowance_of, seconds_to_wait


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, 0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "1, 2"}, 2),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h0m2.5s"}, 3602.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "3"}, 3),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": ""}, None),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, None),
        ({"Retry-After": "1", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 1),
    ],
)
def test_the_seconds_that_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert seconds_to_wait(httpx.Headers(headers)) == seconds


def test_a_date_to_come_is_waited_for() -> None:
    assert 50 < (seconds_to_wait(httpx.Headers({"Retry-After": formatdate(time.time() + 60, usegmt=True)})) or 0) <= 60


@pytest.mark.parametrize(
    ("headers", "remaining", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s"}, 59, 1),
        ({"x-ratelimit-remaining-req-minute": "12", "x-ratelimit-remaining-tokens-minute": "9"}, 12, None),
        ({"anthropic-ratelimit-requests-remaining": "49", "anthropic-ratelimit-requests-reset": "soon"}, 49, None),
        ({"x-ratelimit-remaining-requests": "many", "x-ratelimit-remaining-tokens": "5"}, None, None),
    ],
)
def test_what_remains_of_a_limit(headers: dict[str, str], remaining: float | None, seconds: float | None) -> None:
    expected = None if remaining is None else Allowance(remaining, seconds)
    assert allowance_of(httpx.Headers(headers), "requests") == expected


def test_a_time_of_the_day_at_which_a_limit_is_whole_again() -> None:
    reset = (datetime.now(UTC) + timedelta(seconds=60)).isoformat().replace("+00:00", "Z")
    headers = {"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": reset}
    assert 50 < (seconds_to_wait(headers) or 0) <= 60


def test_amounts_pass_evenly_over_the_minute() -> None:
    async def seconds(limiter: RateLimiter, amounts: list[float]) -> float:
        start = time.monotonic()
        for amount in amounts:
            await limiter.wait(amount)
        return time.monotonic() - start

    assert asyncio.run(seconds(RateLimiter("tokens", None), [1e9, 1e9])) < 1
    assert asyncio.run(seconds(RateLimiter("tokens", 600), [2, 1, 1])) >= 0.3
    corrected = RateLimiter("tokens", 600)
    asyncio.run(corrected.wait(1000))
    corrected.correct(-1000)
    assert asyncio.run(seconds(corrected, [1])) < 5


def test_an_automatic_pace_spreads_what_remains_over_the_time_until_the_reset() -> None:
    async def seconds(limiter: RateLimiter, remaining: int, reset: str, amounts: list[float]) -> float:
        limiter.learn({"x-ratelimit-remaining-tokens": str(remaining), "x-ratelimit-reset-tokens": reset})
        start = time.monotonic()
        for amount in amounts:
            await limiter.wait(amount)
        return time.monotonic() - start

    def pace(*learned: Any, workers: int = 1) -> float:
        return asyncio.run(seconds(RateLimiter("tokens", "auto", workers), *learned))

    assert pace(1000, "1s", [100, 100, 100]) >= 0.2
    assert pace(1000, "1s", [100, 100], workers=3) >= 0.3, "each worker takes its share"
    assert pace(0, "300ms", [1]) >= 0.3, "with nothing left it waits"
    assert 0.2 <= pace(10, "200ms", [1e9, 1]) < 5, "an amount above what remains waits for the reset"
    assert asyncio.run(seconds(RateLimiter("tokens", None), 0, "60s", [1, 1])) < 5, "no setting, no pace"
