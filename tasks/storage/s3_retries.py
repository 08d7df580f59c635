"""How long S3 is waited for: a server that is gone, frozen, or asks to slow down costs time and nothing else.

Time is what counts: `DEFAULT_RETRY_SECONDS` a request from its first failure, or `OVERNIGHT_STORAGE_RETRY_SECONDS` if a
process has that in its environment. A log line says what is waited for. obstore is given the time as a setting.

botocore's own retries count attempts. Of 128 requests to a server that failed for 5 s, mode `standard` (16 attempts, a
quota for all of them) lost all within 3 s. Mode `legacy` (9 attempts) lost none of 128 while a server failed for 30 s,
but took 147 s, without a word; this file takes 37 s. So botocore is set to one attempt, and its event `needs-retry` is
answered here, for a session that s3fs is given. botocore has no documentation of that event. This file is the only one
that knows it, as of aiobotocore 3.10 with botocore 1.43, and `tests/tasks/storage/test_s3.py` fails if it moves.
"""

import logging
import os
import time
from collections import deque
from typing import Any
from urllib.parse import unquote, urlsplit

import aiobotocore
import aiohttp  # noqa: F401 - first: aiobotocore asks for a part of it, which is there before it is complete
from aiobotocore.session import AioSession

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import JobError, ServiceUnavailable
from overnight.tasks.storage.transient_errors import is_passing

WRITTEN_FOR = "3.10."  # aiobotocore
DEFAULT_RETRY_SECONDS = 120.0
RETRY_SECONDS, FORMERLY = "OVERNIGHT_STORAGE_RETRY_SECONDS", "OVERNIGHT_STORAGE_PATIENCE"  # in the environment
RETRIES = RetryPolicy(max_tries=None, first_wait_seconds=0.2, longest_wait_seconds=8.0, jitter=(0.5, 1))
LOG_EVERY_SECONDS = 10.0
ONE_ATTEMPT = {"mode": "standard", "total_max_attempts": 1}  # botocore's setting `retries`

_log = logging.getLogger("overnight.storage")
_logged: deque[float] = deque(maxlen=1)


def retry_timeout_seconds() -> float:
    """Return how long a request is tried again. Raise `JobError` if the environment has it under its former name."""
    if FORMERLY in os.environ:
        raise JobError(f"{FORMERLY} is called {RETRY_SECONDS} now: rename it in the environment.")
    return float(os.environ.get(RETRY_SECONDS) or DEFAULT_RETRY_SECONDS)


def retrying_session(profile: str | None = None) -> AioSession:
    """Return a session of which every client waits for S3. Raise `JobError` for another aiobotocore than 3.10."""
    if not aiobotocore.__version__.startswith(WRITTEN_FOR):
        raise JobError(
            f"s3://: expected aiobotocore {WRITTEN_FOR}*, found {aiobotocore.__version__}, with which it is not known "
            "that a request to S3 is sent again. Run: pip install 'aiobotocore>=3.10,<3.11'"
        )
    session = AioSession(profile=profile)
    session.register("needs-retry.s3", retry_delay, unique_id="overnight-retries")
    return session


def retry_delay(
    attempts: int,
    request_dict: dict[str, Any],
    operation: Any,
    response: Any = None,
    caught_exception: Exception | None = None,
    **_others: Any,
) -> float | None:
    """Answer botocore after each try: seconds until the next one, or None if the outcome stands.

    Raise `ServiceUnavailable` when the time is over.
    """
    problem = _passing_problem(response, caught_exception)
    if problem is None:
        return None
    now, timeout = time.monotonic(), retry_timeout_seconds()
    since = request_dict["context"].setdefault("overnight_first_failure", now)
    what = f"{operation.name} on {_place(request_dict['url'])}"
    if now - since >= timeout:
        raise not_recovered(f"{what} was tried {attempts} times in {now - since:.0f} s and failed, last with {problem}")
    left = timeout - (now - since)
    say(f"waiting for storage: {what} failed with {problem}; trying for {left:.0f} s more")
    return min(RETRIES.wait_seconds(attempts), left)


def not_recovered(what: str) -> ServiceUnavailable:
    """Return the error for a request that was tried for the whole time."""
    return ServiceUnavailable(
        f"the storage did not recover: {what}. Nothing was published; run again to resume where the staged parts end."
    )


def say(sentence: str) -> None:
    """Log a warning, but not one for each of the hundreds of requests that wait for the same thing."""
    if not _logged or time.monotonic() - _logged[0] > LOG_EVERY_SECONDS:
        _logged.append(time.monotonic())
        _log.warning(sentence)


def _passing_problem(response: Any, caught: Exception | None) -> str | None:
    if caught is not None:
        return f"{type(caught).__name__}: {caught}" if is_passing(caught) else None
    status, parsed = response[0].status_code, response[1]
    if status < 300 or not is_passing(_Answer(parsed, status)):
        return None
    error = parsed.get("Error", {})
    return f"{status} {error.get('Code', '')}: {error.get('Message', '')}"


class _Answer(Exception):
    """A server's refusal, in the form in which `is_passing` knows one."""

    def __init__(self, parsed: dict[str, Any], status: int) -> None:
        super().__init__()
        self.response = {"Error": parsed.get("Error", {}), "ResponseMetadata": {"HTTPStatusCode": status}}


def _place(url: str) -> str:
    """The address without its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{unquote(parts.path)}"
