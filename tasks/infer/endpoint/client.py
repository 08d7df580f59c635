"""A client of one endpoint in any dialect: it sends requests, and tries again if that may help.

`faults.py` has the table of faults. After the last try, the error shows the cause: the row (`RowError`), the service
(`ServiceUnavailable`, and `infer` is tried again), the key (`AccessDenied`) or the settings (`JobError`). A short test
request shows whether others succeed.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import AccessDenied, JobError, OvernightError, RowError, ServiceUnavailable
from overnight.tasks.infer.endpoint.faults import Blame, Fault, fault_of
from overnight.tasks.infer.endpoint.rate_limits import PerMinute, RateLimiter
from overnight.tasks.infer.endpoint.transport import Transport

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 8.0
TEST_SECONDS = 20.0
SECONDS_BETWEEN_WARNINGS = 60.0
CHARACTERS_A_TOKEN = 4  # for tokens per minute, until the response has the number

Body = dict[str, Any]  # the JSON object of a request

_log = logging.getLogger("overnight.endpoint")


class Counted(Protocol):
    """An answer of an endpoint, a dataclass whose fields JSON can represent. None: the endpoint did not count."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def prompt_tokens(self) -> int | None: ...

    @property
    def completion_tokens(self) -> int | None: ...


A = TypeVar("A", bound=Counted)
A_co = TypeVar("A_co", bound=Counted, covariant=True)


class Dialect(Protocol[A_co]):
    """A protocol of endpoints, in one file: `path` comes after the URL of the settings."""

    @property
    def path(self) -> str: ...

    def test_body(self, body: Body) -> Body:
        """Return a short request with the settings of `body`, which shows whether requests succeed."""

    def most_tokens(self, body: Body) -> float:
        """Return an estimate of the tokens of a request and its answer, which is too high for most texts."""

    def answer(self, content: bytes) -> A_co:
        """Return the answer in the body of a response. Raise `Fault` for an error."""

    def kept(self, fields: dict[str, Any]) -> A_co:
        """Return the answer with these fields, as the log has them."""


@dataclass(frozen=True)
class Limits:
    """The limits of one worker's requests to an endpoint; those per minute are of all workers together.

    After `max_tries` tries, the request itself counts as the cause of its failure, if other requests
    succeed. Otherwise it is tried for the rest of the time, unless `gives_up` is True.
    """

    concurrent_requests: int
    timeout_seconds: float
    retry_timeout_seconds: float
    max_tries: int
    gives_up: bool
    requests_per_minute: PerMinute = None
    tokens_per_minute: PerMinute = None
    workers: int = 1  # that share the limits per minute


@dataclass
class Request:
    """A request that is under way: its body, and its tries so far."""

    body: Body
    tries: int = 0
    seconds: float = 0  # of all tries and the waits after them, without those for the limits per minute
    is_suspect: bool = False  # another request succeeded beside its last try


class Endpoint(Generic[A]):
    """A client of one endpoint, for one event loop."""

    def __init__(self, dialect: Dialect[A], transport: Transport, limits: Limits) -> None:
        self._dialect, self._transport, self._limits = dialect, transport, limits
        self._retries = RetryPolicy(limits.max_tries, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        self._requests = RateLimiter("requests", limits.requests_per_minute, limits.workers)
        self._tokens = RateLimiter("tokens", limits.tokens_per_minute, limits.workers)
        self._slots, self._test_lock = asyncio.Semaphore(limits.concurrent_requests), asyncio.Lock()
        self._not_before = self._last_success = self._next_warning = 0.0
        self._largest_success = 0.0  # in tokens, as estimated

    async def answer(self, body: Body) -> A:
        """Send a request with the JSON object `body`, try again if that may help, and return the answer."""
        async with self._slots:
            request = Request(body)
            while True:
                await self._wait_for_turn(body)
                start = time.monotonic()
                budget = self._limits.retry_timeout_seconds - request.seconds
                seconds = min(self._limits.timeout_seconds, max(budget, 1.0))
                try:
                    return await self._post(body, seconds)
                except Fault as error:
                    fault = error
                if not fault.passes:
                    fault = await self._blamed(body, fault)
                request.tries += 1
                wait_seconds = fault.retry_after
                if wait_seconds is None:
                    wait_seconds = self._retries.wait_seconds(request.tries)
                request.seconds += time.monotonic() - start + wait_seconds
                await self._raise_at_the_end(request, fault, start)
                if fault.blame is Blame.LIMIT:
                    self._not_before = max(self._not_before, time.monotonic() + wait_seconds)
                self._warn(fault, start, wait_seconds, budget)
                await asyncio.sleep(wait_seconds)

    async def _wait_for_turn(self, body: Body) -> None:
        while (seconds := self._not_before - time.monotonic()) > 0:
            await asyncio.sleep(seconds)
        await self._tokens.wait(self._dialect.most_tokens(body))
        await self._requests.wait()

    async def _raise_at_the_end(self, request: Request, fault: Fault, start: float) -> None:
        """Raise `RowError` or `ServiceUnavailable` after the last try of a request."""
        limits = self._limits
        is_over = request.seconds >= limits.retry_timeout_seconds
        if is_over or request.tries + 1 >= limits.max_tries:
            was_suspect = request.is_suspect
            request.is_suspect = await self._is_alone(request.body, fault, start)
            # Not the first time: the service may have recovered just then.
            if request.is_suspect and (was_suspect or is_over):
                raise RowError(f"{fault.sentence}, in {request.tries} tries; other requests succeed.")
        if is_over or (limits.gives_up and request.tries >= limits.max_tries):
            advice = "" if limits.gives_up else " The answers so far are kept; run again to resume."
            if fault.blame is Blame.LIMIT:
                advice += " Set requests_per_minute to its limit, or to auto."
            raise ServiceUnavailable(
                f"{self._transport.shown_url}: no request succeeded in {request.tries} tries and "
                f"{request.seconds:.0f} s: {fault.sentence}.{advice}",
                "infer",
            )

    async def _blamed(self, body: Body, fault: Fault) -> Fault:
        """Raise the error of a fault that does not pass by itself.

        Return the passing fault of the test request, if that hides the cause.
        """
        if fault.blame is Blame.ROW:
            raise RowError(f"expected an answer, found {fault.sentence}")
        if not fault.is_sure:
            try:
                await self._test(body, time.monotonic())
            except Fault as test_fault:
                if test_fault.passes:
                    return test_fault
                if test_fault.blame is not Blame.ROW:
                    fault = test_fault
            else:
                raise RowError(f"expected an answer, found {fault.sentence}; other requests succeed.")
        raise self._refusal(fault)

    def _refusal(self, fault: Fault) -> OvernightError:
        advice = f"{fault.advice}: " if fault.advice else ""
        kind = AccessDenied if fault.blame is Blame.KEY else JobError
        return kind(f"{self._transport.shown_url}: {advice}{fault.sentence}", "infer")

    async def _is_alone(self, body: Body, fault: Fault, since: float) -> bool:
        """Return True if other requests succeed, so that a passing fault is the row's own.

        A limit is the row's own only if the row is larger than each request that succeeded.
        """
        if fault.blame is Blame.LIMIT:
            if self._dialect.most_tokens(body) <= self._largest_success:
                return False
            since = time.monotonic()
        try:
            await self._test(body, since)
        except Fault as test_fault:
            if test_fault.blame in (Blame.KEY, Blame.SETTINGS):
                raise self._refusal(test_fault) from None
            return False
        return True

    async def _test(self, body: Body, since: float) -> None:
        """Raise the `Fault` of a short test request, unless another request has succeeded after `since`."""
        async with self._test_lock:
            if self._last_success > since:
                return
            short = self._dialect.test_body(body)
            await self._post(short, min(self._limits.timeout_seconds, TEST_SECONDS))

    async def _post(self, body: Body, seconds: float) -> A:
        try:
            response = await self._transport.post(body, seconds)
            for limiter in (self._requests, self._tokens):
                limiter.learn(response.headers)
            if response.status_code != 200:
                raise fault_of(response)
            answer = self._dialect.answer(response.content)
        except Fault as fault:
            fault.sentence = self._transport.shown(fault.sentence)
            raise
        self._last_success = time.monotonic()
        estimate = self._dialect.most_tokens(body)
        self._largest_success = max(self._largest_success, estimate)
        if answer.prompt_tokens is not None and answer.completion_tokens is not None:
            self._tokens.correct(answer.prompt_tokens + answer.completion_tokens - estimate)
        return answer

    def _warn(self, fault: Fault, start: float, wait_seconds: float, budget: float) -> None:
        """Log a fault; as a warning if nothing succeeds, the first time immediately and then once a minute."""
        level = logging.INFO
        if self._last_success < start and time.monotonic() >= self._next_warning:
            level = logging.WARNING
            self._next_warning = time.monotonic() + SECONDS_BETWEEN_WARNINGS
        bound = f"{self._limits.max_tries} tries" if self._limits.gives_up else f"{budget:.0f} s"
        message = "%s: %s; trying again in %.1f s, for at most %s"
        _log.log(level, message, self._transport.shown_url, fault.sentence, wait_seconds, bound)
