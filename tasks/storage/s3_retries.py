"""Retries requests to S3 up to a time limit, so that a server that is down, frozen or throttling only costs time.

`seconds_to_wait` decides for obstore, and for botocore below s3fs, whose own retries end after 3 s (`standard`) or wait
without a log line (`legacy`). So botocore makes one attempt, and this file handles its event `needs-retry`. botocore
does not document that event, so another aiobotocore than 3.10 (botocore 1.43) is refused.
"""

import contextlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import aiobotocore
import aiohttp  # noqa: F401 - first: aiobotocore uses a part of it that exists before its import is complete
from aiobotocore.credentials import AioAssumeRoleCredentialFetcher, AioDeferredRefreshableCredentials
from aiobotocore.session import AioSession

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import JobError, ServiceUnavailable
from overnight.tasks.storage.failed_requests import note
from overnight.tasks.storage.transient_errors import is_passing, is_passing_status

WRITTEN_FOR = "3.10."  # aiobotocore
DEFAULT_RETRY_SECONDS = 120.0  # per request, from its first failure
RETRY_SECONDS, FORMERLY = "OVERNIGHT_STORAGE_RETRY_SECONDS", "OVERNIGHT_STORAGE_PATIENCE"  # in the environment
RETRIES = RetryPolicy(max_tries=None, first_wait_seconds=0.2, longest_wait_seconds=8.0, jitter=(0.5, 1))
LOG_EVERY_SECONDS, LOG_AFTER_SECONDS = 10.0, 10.0
ONE_ATTEMPT = {"mode": "standard", "total_max_attempts": 1}  # botocore's setting `retries`

_log = logging.getLogger("overnight.storage")
_logged: deque[float] = deque(maxlen=1)


def retry_timeout_seconds() -> float:
    """Return for how many seconds after its first failure a request is retried."""
    if FORMERLY in os.environ:
        raise JobError(f"{FORMERLY} is called {RETRY_SECONDS} now: rename it in the environment.")
    text = os.environ.get(RETRY_SECONDS) or DEFAULT_RETRY_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise JobError(f"{RETRY_SECONDS}: expected a number of seconds, found {text!r}. Correct the environment.")
    return seconds


def retrying_session(profile: str | None = None, role_arn: str | None = None, region: str | None = None) -> AioSession:
    """Return a session whose clients retry requests to S3, with the keys of a profile, or of a role that it assumes.

    Raise `JobError` if AWS's configuration has no such profile.
    """
    if not aiobotocore.__version__.startswith(WRITTEN_FOR):
        raise JobError(
            f"s3://: expected aiobotocore {WRITTEN_FOR}*, found {aiobotocore.__version__}, which may not retry "
            "requests to S3. Run: pip install 'aiobotocore>=3.10,<3.11'"
        )
    session = AioSession(profile=profile)
    if profile and profile not in session.available_profiles:
        raise JobError(
            f"s3://: expected the profile {profile} in AWS's configuration where the job runs, found "
            f"{', '.join(session.available_profiles) or 'no profile'}. Add it to ~/.aws/config, or to the file in "
            "AWS_CONFIG_FILE."
        )
    if role_arn:
        provider = AssumedRole(AioSession(profile=profile), role_arn, region)
        session.get_component("credential_provider").providers.insert(0, provider)
    session.register("needs-retry.s3", retry_delay, unique_id="overnight-retries")
    return session


class AssumedRole:
    """A provider of botocore: it gets keys of a role from STS with the keys of `source`, and renews them."""

    METHOD = "assume-role"

    def __init__(self, source: AioSession, role_arn: str, region: str | None) -> None:
        self._source, self._role_arn, self._region = source, role_arn, region

    async def load(self) -> AioDeferredRefreshableCredentials | None:
        """Return credentials that botocore refreshes; None if `source` has no keys."""
        source_credentials = await self._source.get_credentials()
        if source_credentials is None:
            return None
        fetcher = AioAssumeRoleCredentialFetcher(
            partial(self._source.create_client, region_name=self._region),
            source_credentials,
            self._role_arn,
            extra_args={"RoleSessionName": "overnight"},
        )
        return AioDeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)


def retry_delay(
    attempts: int,
    request_dict: dict[str, Any],
    operation: Any,
    response: Any = None,
    caught_exception: Exception | None = None,
    **_others: Any,
) -> float | None:
    """Return `seconds_to_wait` before botocore's next try of a request, or None if the result is final."""
    problem = _passing_problem(response, caught_exception)
    if problem is None:
        return None
    first_failure = request_dict["context"].setdefault("overnight_first_failure", time.monotonic())
    url = urlsplit(request_dict["url"])
    server = url.netloc.rpartition("@")[2]
    request = f"{operation.name} on {url.scheme}://{server}{unquote(url.path)}"
    kind = type(caught_exception).__name__ if caught_exception else problem.partition(":")[0]
    return seconds_to_wait(request, url.netloc, attempts, first_failure, problem, kind)


def seconds_to_wait(request: str, server: str, tries: int, first_failure: float, problem: str, kind: str) -> float:
    """Return the seconds until the next try of a request that failed with `problem`, noted as a `kind` of the server's.

    Raise `ServiceUnavailable` if the first failure was `retry_timeout_seconds` ago.
    """
    seconds, timeout = time.monotonic() - first_failure, retry_timeout_seconds()
    if seconds >= timeout:
        raise ServiceUnavailable(
            f"the storage did not recover: {request} was tried {tries} times in {seconds:.0f} s and failed, last "
            f"with {problem}. Nothing was published; run again to resume where the staged parts end."
        )
    note(f"{server}: {kind}")
    say(f"waiting for storage: {request} failed with {problem}; trying for {timeout - seconds:.0f} s more")
    return min(RETRIES.wait_seconds(tries), timeout - seconds)


def say(sentence: str) -> None:
    """Log the sentence, unless another was logged in the last `LOG_EVERY_SECONDS`: many requests report one problem."""
    if not _logged or time.monotonic() - _logged[0] > LOG_EVERY_SECONDS:
        _logged.append(time.monotonic())
        _log.warning(sentence)


@contextlib.contextmanager
def log_wait(request: str) -> Iterator[None]:
    """Log a line if the body takes longer than `LOG_AFTER_SECONDS`."""
    sentence = f"waiting for storage: {request} has taken {LOG_AFTER_SECONDS:.0f} s so far"
    timer = threading.Timer(LOG_AFTER_SECONDS, say, [sentence])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _passing_problem(response: Any, error: Exception | None) -> str | None:
    """Return what failed, if waiting may help. `response` is a pair of HTTP's response and botocore's dictionary."""
    if error is not None:
        return f"{type(error).__name__}: {error}" if is_passing(error) else None
    status, error_details = response[0].status_code, response[1].get("Error", {})
    code = error_details.get("Code", "")
    if status < 300 or not is_passing_status(status, code):
        return None
    return f"{status} {code}: {error_details.get('Message', '')}"
