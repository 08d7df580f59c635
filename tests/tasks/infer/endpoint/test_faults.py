"""How long a server asks to wait, and whether a limit can be waited for."""

import time
from email.utils import formatdate

import httpx
import pytest

from overnight.tasks.infer.endpoint.faults import Blame, exceeds_alone, fault_of, seconds_to_wait


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
    ("words", "expected"),
    [
        ("Rate limit reached: Limit 30000, Used 29000, Requested 1200. Please try again in 1s.", False),
        ("Request too large for m on TPM: Limit 30,000, Requested 36,278.", True),
        ("Request too large for m on TPM: Limit 30000, Requested 100, Used 29950.", False),
        ("Request too large", True),
        ("the prompt is too long", True),
        ("Too many requests", False),
        ("Limit: , Requested: ,", False),
    ],
)
def test_a_limit_that_one_request_exceeds_alone(words: str, expected: bool) -> None:
    assert exceeds_alone(words) is expected


@pytest.mark.parametrize(
    ("status", "body", "blame"),
    [
        (429, {"error": {"code": "insufficient_quota"}}, Blame.KEY),
        (429, {"error": "insufficient_quota"}, Blame.KEY),
        (400, {"error": {"innererror": {"code": "ResponsibleAIPolicyViolation"}}}, Blame.ROW),
        (404, {"error": {"code": "model_not_found"}}, Blame.SETTINGS),
        (418, None, Blame.ROW),
        (599, [], Blame.SERVER),
        (304, "moved", Blame.SETTINGS),
    ],
)
def test_a_code_in_the_error_says_more_than_the_status(status: int, body: object, blame: Blame) -> None:
    assert fault_of(httpx.Response(status, json=body)).blame is blame
