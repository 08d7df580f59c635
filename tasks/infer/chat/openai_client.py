"""A client of one OpenAI-compatible endpoint: it sends requests, and tries again if that may help.

`faults.py` has the table of faults, and `completion.py` reads answers. After the last try, the error
shows the cause: the row (`RowError`), the service (`ServiceUnavailable`, and `infer` is tried
again), the key (`AccessDenied`) or the settings (`JobError`). A short test request shows whether
others succeed. No message and no log contains the key, or the value of a header of the settings.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from overnight.tasks.config.masking import HIDDEN, masked
from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import AccessDenied, JobError, OvernightError, RowError, ServiceUnavailable
from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.completion import answer_of
from overnight.tasks.infer.chat.faults import Blame, Fault, fault_of
from overnight.tasks.infer.chat.proxy import goes_directly, proxy_of
from overnight.tasks.infer.chat.rate_limiter import RateLimiter

if TYPE_CHECKING:
    import httpx

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 8.0
TEST_SECONDS = 20.0
SECONDS_BETWEEN_WARNINGS = 60.0
CHARACTERS_A_TOKEN = 4  # for tokens per minute, until the response has the number
MESSAGE_CHARACTERS = 300
MOST_BYTES = 64 * 2**20  # of an answer, unpacked
MOST_BYTES_OF_FAULTS = 2**20  # of the words of another status; what follows is left
ENCODINGS = ("identity", "gzip", "deflate")
OF_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")  # headers that are about the packed content
SHORTEST_SECRET = 6  # minimum characters of a value in the query that is masked in responses
ONLY_OF_ROWS = ("n", "response_format", "logprobs", "top_logprobs", "tools", "tool_choice")  # not in a test request

_log = logging.getLogger("overnight.endpoint")


@dataclass(frozen=True)
class Limits:
    """The limits of one worker's requests to an endpoint.

    After `max_tries` tries, the request itself counts as the cause of its failure, if other requests
    succeed. Otherwise it is tried for the rest of the time, unless `gives_up` is True.
    """

    concurrent_requests: int
    timeout_seconds: float
    retry_timeout_seconds: float
    max_tries: int
    texts_per_answer: int
    gives_up: bool
    requests_per_minute: float | None
    tokens_per_minute: float | None


@dataclass
class Request:
    """A request that is under way: its body, and its tries so far."""

    body: dict[str, Any]
    tries: int = 0
    seconds: float = 0  # of all tries and the waits after them, without those for the limits per minute
    is_suspect: bool = False  # another request succeeded beside its last try


class Endpoint:
    """A client of one endpoint, for one event loop."""

    def __init__(self, url: str, key: str | None, headers: Mapping[str, str], limits: Limits) -> None:
        """Raise `JobError` if `url`, which has no `/chat/completions`, is not an HTTP URL with a host."""
        import httpx

        if not url.startswith(("http://", "https://")) or not httpx.URL(url).host:
            raise JobError("base_url: expected http:// or https:// and a host, found another form.", "infer")
        logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise it logs a line per request
        base = httpx.URL(url)
        self._shown_url, self._limits = masked(url.rstrip("/")), limits
        self._url = base.copy_with(path=f"{base.path.rstrip('/')}/chat/completions")  # before the query
        self._secrets = _secrets(key, list(base.params.values()), headers)
        self._proxy = proxy_of(base.scheme, base.host)
        sent_headers = {"Accept-Encoding": "gzip, deflate", **headers}
        if key:
            sent_headers["Authorization"] = f"Bearer {key}"
        self._client = _client(base.host, sent_headers, limits.concurrent_requests)
        self._retries = RetryPolicy(limits.max_tries, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        self._requests = RateLimiter(limits.requests_per_minute)
        self._tokens = RateLimiter(limits.tokens_per_minute)
        self._slots, self._test_lock = asyncio.Semaphore(limits.concurrent_requests), asyncio.Lock()
        self._not_before = self._last_success = self._next_warning = 0.0
        self._largest_success = 0.0  # in tokens, as estimated

    async def answer(self, body: dict[str, Any]) -> Answer:
        """Send a request with the JSON object `body`, try again if that may help, and return the answer."""
        async with self._slots:
            request = Request(body)
            while True:
                await self._wait_for_turn(body)
                start = time.monotonic()
                budget = self._limits.retry_timeout_seconds - request.seconds
                seconds = min(self._limits.timeout_seconds, max(budget, 1.0))
                try:
                    return await self._post(body, seconds, self._limits.texts_per_answer)
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

    async def _wait_for_turn(self, body: dict[str, Any]) -> None:
        while (seconds := self._not_before - time.monotonic()) > 0:
            await asyncio.sleep(seconds)
        await self._tokens.wait(_tokens_at_most(body))
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
                raise RowError(f"{self._shown(fault.sentence)}, in {request.tries} tries; other requests succeed.")
        if is_over or (limits.gives_up and request.tries >= limits.max_tries):
            advice = "" if limits.gives_up else " The answers so far are kept; run again to resume."
            if fault.blame is Blame.LIMIT:
                advice += " Set requests_per_minute to its limit."
            raise ServiceUnavailable(
                f"{self._shown_url}: no request succeeded in {request.tries} tries and {request.seconds:.0f} s: "
                f"{self._shown(fault.sentence)}.{advice}",
                "infer",
            )

    async def _blamed(self, body: dict[str, Any], fault: Fault) -> Fault:
        """Raise the error of a fault that does not pass by itself.

        Return the passing fault of the test request, if that hides the cause.
        """
        if fault.blame is Blame.ROW:
            raise RowError(f"expected an answer, found {self._shown(fault.sentence)}")
        if not fault.is_sure:
            try:
                await self._test(body, time.monotonic())
            except Fault as test_fault:
                if test_fault.passes:
                    return test_fault
                if test_fault.blame is not Blame.ROW:
                    fault = test_fault
            else:
                raise RowError(f"expected an answer, found {self._shown(fault.sentence)}; other requests succeed.")
        raise self._refusal(fault)

    def _refusal(self, fault: Fault) -> OvernightError:
        sentence = self._shown(fault.sentence)
        if fault.advice:
            sentence = f"{fault.advice}: {sentence}"
        kind = AccessDenied if fault.blame is Blame.KEY else JobError
        return kind(f"{self._shown_url}: {sentence}", "infer")

    async def _is_alone(self, body: dict[str, Any], fault: Fault, since: float) -> bool:
        """Return True if other requests succeed, so that a passing fault is the row's own.

        A limit is the row's own only if the row is larger than each request that succeeded.
        """
        if fault.blame is Blame.LIMIT:
            if _tokens_at_most(body) <= self._largest_success:
                return False
            since = time.monotonic()
        try:
            await self._test(body, since)
        except Fault as test_fault:
            if test_fault.blame in (Blame.KEY, Blame.SETTINGS):
                raise self._refusal(test_fault) from None
            return False
        return True

    async def _test(self, body: dict[str, Any], since: float) -> None:
        """Raise the `Fault` of a short test request, unless another request has succeeded after `since`."""
        async with self._test_lock:
            if self._last_success > since:
                return
            short = {name: value for name, value in body.items() if name not in ONLY_OF_ROWS}
            for name in ("max_tokens", "max_completion_tokens"):
                if name in body:
                    short[name] = 1
            short["messages"] = [{"role": "user", "content": "Hi"}]
            await self._post(short, min(self._limits.timeout_seconds, TEST_SECONDS), 1)

    async def _post(self, body: dict[str, Any], seconds: float, texts: int) -> Answer:
        import httpx

        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream("POST", self._url, json=body, timeout=None) as stream,
            ):
                response = await _whole(stream)
        except TimeoutError:
            raise Fault(Blame.SERVER, f"no answer within {seconds:.3g} s") from None
        except httpx.RequestError as error:
            through = f", through the proxy {self._proxy} of the environment (see NO_PROXY)" if self._proxy else ""
            raise Fault(Blame.SERVER, f"{type(error).__name__}: {error}{through}") from None
        if response.status_code != 200:
            raise fault_of(response)
        answer = answer_of(response.content, texts)
        self._last_success = time.monotonic()
        estimate = _tokens_at_most(body)
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
        _log.log(level, message, self._shown_url, self._shown(fault.sentence), wait_seconds, bound)

    def _shown(self, text: str) -> str:
        text = " ".join(text.encode(errors="replace").decode().split())
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return masked(text)[:MESSAGE_CHARACTERS]


def _client(host: str, headers: Mapping[str, str], connections: int) -> "httpx.AsyncClient":
    import httpx

    no_proxies = dict.fromkeys(("all://", "http://", "https://")) if goes_directly(host) else None
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    try:
        return httpx.AsyncClient(mounts=no_proxies, headers=headers, limits=limits)
    except (ValueError, ImportError) as error:  # socks:// without its library, or no URL
        raise JobError(f"the proxy of the environment cannot be used: {masked(str(error))}", "infer") from None


def _secrets(key: str | None, query_values: list[str], headers: Mapping[str, str]) -> list[str]:
    """Return the texts that no message may have, the longest first."""
    values = query_values
    for header in headers.values():
        values += [header, *header.split()]  # also the key alone, in `Basic key`
    secrets = {value for value in values if len(value) >= SHORTEST_SECRET}
    if key:
        secrets.add(key)
    return sorted(secrets, key=len, reverse=True)


async def _whole(response: "httpx.Response") -> "httpx.Response":
    """Return a response with its content. Raise `Fault` for more than `MOST_BYTES`, however small it is compressed."""
    import httpx

    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ENCODINGS:  # several, or another one, could unpack one packet to more than the memory
        raise Fault(Blame.SETTINGS, f"an answer in the encoding {encoding!r}, expected {' or '.join(ENCODINGS)}")
    content, is_answer = bytearray(), response.status_code == 200
    async for part in response.aiter_bytes():
        content += part
        if is_answer and len(content) > MOST_BYTES:
            raise Fault(Blame.ROW, f"an answer of more than {MOST_BYTES:,} bytes")
        if not is_answer and len(content) > MOST_BYTES_OF_FAULTS:
            break
    headers = [(name, value) for name, value in response.headers.items() if name not in OF_TRANSFER]
    return httpx.Response(response.status_code, headers=headers, content=bytes(content))


def _tokens_at_most(body: dict[str, Any]) -> float:
    """Return an estimate of the tokens of a request and its answer, which is too high for most texts."""
    characters = sum(len(str(message["content"])) for message in body["messages"])
    answer_tokens = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    return characters / CHARACTERS_A_TOKEN + int(answer_tokens) * int(body.get("n") or 1)
