"""Retries requests to S3 up to a time limit, so that a server that is down, frozen or throttling only costs time.

The limit is `DEFAULT_RETRY_SECONDS` per request from its first failure, or `OVERNIGHT_STORAGE_RETRY_SECONDS` from the
environment. A log line names the cause of the wait, and `failed_requests.py` keeps the causes for the run's incidents.

botocore's own retries count attempts. Mode `standard` makes 16 attempts, with a quota for all requests. It lost all of
128 requests within 3 s while a server failed for 5 s. Mode `legacy` makes 9 attempts. It lost none of 128 while a
server failed for 30 s, but took 147 s without a log line; this file takes 37 s. So botocore is set to one attempt, and
this file handles its event `needs-retry` in the session for s3fs. botocore does not document that event. This file is
the only one that uses it, with aiobotocore 3.10 and botocore 1.43. `tests/tasks/storage/test_s3.py` fails if the event
changes.
"""

import logging
import math
import os
import time
from collections import deque
from typing import Any
from urllib.parse import unquote, urlsplit

import aiobotocore
import aiohttp  # noqa: F401 - first: aiobotocore uses a part of it that exists before its import is complete
from aiobotocore.session import AioSession

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import JobError, ServiceUnavailable
from overnight.tasks.storage.failed_requests import note
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
    """Return for how many seconds after its first failure a request is retried.

    It is `OVERNIGHT_STORAGE_RETRY_SECONDS` from the environment, or 120. Raise `JobError` if this setting is not a
    number of 0 or more, or has its former name.
    """
    if FORMERLY in os.environ:
        raise JobError(f"{FORMERLY} is called {RETRY_SECONDS} now: rename it in the environment.")
    written = os.environ.get(RETRY_SECONDS) or DEFAULT_RETRY_SECONDS
    try:
        seconds = float(written)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise JobError(f"{RETRY_SECONDS}: expected a number of seconds, found {written!r}. Correct the environment.")
    return seconds


def retrying_session(profile: str | None = None) -> AioSession:
    """Return a session whose clients retry requests to S3.

    `profile` is the name of a profile in AWS's configuration; None means the default one. Raise `JobError` if another
    aiobotocore than 3.10 is installed.
    """
    if not aiobotocore.__version__.startswith(WRITTEN_FOR):
        raise JobError(
            f"s3://: expected aiobotocore {WRITTEN_FOR}*, found {aiobotocore.__version__}, which may not retry "
            "requests to S3. Run: pip install 'aiobotocore>=3.10,<3.11'"
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
    """Return the seconds until botocore's next try of a request, or None if the result is final.

    botocore calls this function after each try, with the arguments of its event `needs-retry`. Raise
    `ServiceUnavailable` if the first failure was `retry_timeout_seconds` ago.
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
    kind = type(caught_exception).__name__ if caught_exception else problem.partition(":")[0]
    note(f"{urlsplit(request_dict['url']).netloc}: {kind}")
    say(f"waiting for storage: {what} failed with {problem}; trying for {left:.0f} s more")
    return min(RETRIES.wait_seconds(attempts), left)


def not_recovered(what: str) -> ServiceUnavailable:
    """Return the error of a request that failed until the time for retries was over.

    `what` is a clause on the request and its last failure, for the message.
    """
    return ServiceUnavailable(
        f"the storage did not recover: {what}. Nothing was published; run again to resume where the staged parts end."
    )


def say(sentence: str) -> None:
    """Log the sentence as a warning, unless another was logged in the last `LOG_EVERY_SECONDS` (10 s).

    Hundreds of concurrent requests may report the same problem.
    """
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
    """A server's error response as an exception that `is_passing` accepts."""

    def __init__(self, parsed: dict[str, Any], status: int) -> None:
        super().__init__()
        self.response = {"Error": parsed.get("Error", {}), "ResponseMetadata": {"HTTPStatusCode": status}}


def _place(url: str) -> str:
    """Return the address without its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{unquote(parts.path)}"
