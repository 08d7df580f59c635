"""A client of one OpenAI-compatible endpoint: it sends requests for chat completions, and tries again if that may help.

`faults.py` has the table of faults: whose each is, and how often a request is tried. `completion.py` reads answers.
After the last try, the error shows the cause: the row (`RowError`), the service (`ServiceUnavailable`, and `infer` is
tried again), the key (`AccessDenied`) or the settings (`JobError`). A short test request shows whether others succeed.

`Retry-After` is respected, and after a 429 delays all requests. No message and no log contains the key, or the value
of a header from the settings. Requests to this machine's own addresses use no proxy.
"""

import asyncio
import ipaddress
import logging
import os
import socket
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from overnight.tasks.config.masking import HIDDEN, masked
from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import AccessDenied, JobError, OvernightError, RowError, ServiceUnavailable
from overnight.tasks.infer.chat.completion import answer_of
from overnight.tasks.infer.chat.faults import Blame, Fault, fault_of
from overnight.tasks.infer.chat.rate_limiter import RateLimiter
from overnight.tasks.infer.chat.answer import Answer

if TYPE_CHECKING:
    import httpx

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 8.0
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
class RetryLimits:
    """The limits of a request to a chat endpoint.

    `timeout_seconds` is the time for one response, and `retry_timeout_seconds` the time for all tries. After
    `max_tries` tries, the request itself counts as the cause of its failure, if other requests succeed. Otherwise it is
    tried for the rest of the time, unless `gives_up` is True.
    """

    timeout_seconds: float
    retry_timeout_seconds: float
    max_tries: int
    gives_up: bool = False


class Endpoint:
    """A client of one endpoint, for one event loop, with at most `at_once` requests at a time.

    `url` is the endpoint's URL without `/chat/completions`. `key` is the API key; None sends no key. `headers` are
    further headers; their values are secrets. Error messages show `url` without the values of its query. `limits`
    bounds the time and the tries of each request. `requests` limits the requests per minute, and `tokens` their tokens.
    An answer has at most `texts` texts. Raises `JobError` if `url` is not an HTTP URL with a host.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        at_once: int,
        limits: RetryLimits,
        requests: RateLimiter,
        tokens: RateLimiter,
        texts: int = 1,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        import httpx

        if not url.startswith(("http://", "https://")) or not httpx.URL(url).host:
            raise JobError("base_url: expected http:// or https:// and a host, found another form.", "infer")
        logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise it logs a line per request
        asked = httpx.URL(url)
        self._url, self._limits = masked(url.rstrip("/")), limits
        self._retries = RetryPolicy(limits.max_tries, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        self._asked = asked.copy_with(path=f"{asked.path.rstrip('/')}/chat/completions")  # before the query
        own = dict(headers or {})
        words = [word for value in own.values() for word in (value, *value.split())]
        values = [value for value in (*asked.params.values(), *words) if len(value) >= SHORTEST_SECRET]
        self._secrets = sorted({secret for secret in (key, *values) if secret}, key=len, reverse=True)
        self._requests, self._tokens, self._texts = requests, tokens, texts
        goes_direct = is_own_machine(asked.host) or is_in_no_proxy(asked.host)
        self._proxy = "" if goes_direct else proxy_of(asked.scheme, asked.host)
        try:
            self._client = httpx.AsyncClient(
                mounts=dict.fromkeys(("all://", "http://", "https://")) if goes_direct else None,
                headers={"Accept-Encoding": "gzip, deflate"}
                | own
                | ({"Authorization": f"Bearer {key}"} if key else {}),
                limits=httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once),
            )
        except (ValueError, ImportError) as error:  # socks:// without its library, or no URL
            raise JobError(f"the proxy of the environment cannot be used: {masked(str(error))}", "infer") from None
        self._slots, self._seeing = asyncio.Semaphore(at_once), asyncio.Lock()
        self._not_before = self._last_success = self._next_warning = 0.0
        self._largest_success = 0.0  # in tokens, as estimated

    async def ask(self, body: dict[str, Any]) -> Answer:
        """Send a request with the JSON object `body`, try again if that may help, and return the answer.

        Raise `RowError` if this request is the cause of a failure. Raise `AccessDenied` or `JobError` if the key or the
        settings are the cause, and `ServiceUnavailable` if no request succeeds.
        """
        async with self._slots:
            return await self._post_with_retries(body)

    async def _post_with_retries(self, body: dict[str, Any]) -> Answer:
        spent, tries, is_suspect = 0.0, 0, False
        while True:
            await self._turn(body)
            began, tries = time.monotonic(), tries + 1
            rest = self._limits.retry_timeout_seconds - spent
            try:
                return await self._once(body, min(self._limits.timeout_seconds, max(rest, 1.0)), self._texts)
            except Fault as error:
                fault = error
            if not fault.passes:
                fault = await self._blamed(body, fault)
            seconds = self._retries.wait_seconds(tries) if fault.retry_after is None else fault.retry_after
            spent += time.monotonic() - began + seconds  # without the waits for the limits per minute
            is_over = spent >= self._limits.retry_timeout_seconds
            if is_over or tries + 1 >= self._limits.max_tries:
                was_suspect, is_suspect = is_suspect, await self._is_alone(body, fault, began)
                if is_suspect and (
                    was_suspect or is_over
                ):  # not the first time: the service may have recovered just then
                    raise RowError(f"{self._shown(fault.sentence)}, in {tries} tries; other requests succeed.")
            if is_over or (self._limits.gives_up and tries >= self._limits.max_tries):
                advice = "" if self._limits.gives_up else " The answers so far are kept; run again to resume."
                advice += " Set requests_per_minute to its limit." if fault.blame is Blame.LIMIT else ""
                raise ServiceUnavailable(
                    f"{self._url}: no request succeeded in {tries} tries and {spent:.0f} s: "
                    f"{self._shown(fault.sentence)}.{advice}",
                    "infer",
                )
            if fault.blame is Blame.LIMIT:
                self._not_before = max(self._not_before, time.monotonic() + seconds)
            self._warn(fault, began, seconds, rest)
            await asyncio.sleep(seconds)

    async def _turn(self, body: dict[str, Any]) -> None:
        while (seconds := self._not_before - time.monotonic()) > 0:
            await asyncio.sleep(seconds)
        await self._tokens.wait(_tokens_at_most(body))
        await self._requests.wait()

    async def _blamed(self, body: dict[str, Any], fault: Fault) -> Fault:
        """Raise the error of a fault that does not pass by itself.

        Return the passing fault of the test request, if that hides whose fault it is.
        """
        if fault.blame is Blame.ROW:
            raise RowError(f"expected an answer, found {self._shown(fault.sentence)}")
        if not fault.is_sure:
            try:
                await self._test(body, time.monotonic())
            except Fault as other:
                if other.passes:
                    return other
                fault = other if other.blame is not Blame.ROW else fault
            else:
                raise RowError(f"expected an answer, found {self._shown(fault.sentence)}; other requests succeed.")
        raise self._refusal(fault)

    def _refusal(self, fault: Fault) -> OvernightError:
        advice = f"{fault.advice}: " if fault.advice else ""
        kind = AccessDenied if fault.blame is Blame.KEY else JobError
        return kind(f"{self._url}: {advice}{self._shown(fault.sentence)}", "infer")

    async def _is_alone(self, body: dict[str, Any], fault: Fault, since: float) -> bool:
        """Return True if other requests succeed, so that a passing fault is the row's own.

        A limit is the row's own only if the row is larger than each request that succeeded.
        """
        if fault.blame is Blame.LIMIT and _tokens_at_most(body) <= self._largest_success:
            return False
        try:
            await self._test(body, time.monotonic() if fault.blame is Blame.LIMIT else since)
        except Fault as other:
            if other.blame in (Blame.KEY, Blame.SETTINGS):
                raise self._refusal(other) from None
            return False
        return True

    async def _test(self, body: dict[str, Any], since: float) -> None:
        """Return if another request has succeeded since `since`, or a short test request succeeds now.

        Raise the `Fault` of the test request.
        """
        async with self._seeing:
            if self._last_success > since:
                return
            harmless = {name: value for name, value in body.items() if name not in ONLY_OF_ROWS}
            harmless |= {name: 1 for name in ("max_tokens", "max_completion_tokens") if name in body}
            harmless["messages"] = [{"role": "user", "content": "Hi"}]
            await self._once(harmless, min(self._limits.timeout_seconds, 20.0))

    async def _once(self, body: dict[str, Any], seconds: float, texts: int = 1) -> Answer:
        import httpx

        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream("POST", self._asked, json=body, timeout=None) as streamed,
            ):
                response = await _whole(streamed)
        except TimeoutError:
            raise Fault(Blame.SERVER, f"no answer within {seconds:.3g} s") from None
        except httpx.RequestError as error:
            through = f", through the proxy {self._proxy} of the environment (see NO_PROXY)" if self._proxy else ""
            raise Fault(Blame.SERVER, f"{type(error).__name__}: {error}{through}") from None
        if response.status_code != 200:
            raise fault_of(response)
        answer = answer_of(response.content, texts)
        self._last_success = time.monotonic()
        self._largest_success = max(self._largest_success, _tokens_at_most(body))
        if answer.prompt_tokens is not None and answer.completion_tokens is not None:
            self._tokens.correct(answer.prompt_tokens + answer.completion_tokens - _tokens_at_most(body))
        return answer

    def _warn(self, fault: Fault, began: float, seconds: float, rest: float) -> None:
        """Log a fault; as a warning if nothing succeeds, the first time immediately and then once a minute."""
        is_away = self._last_success < began and time.monotonic() >= self._next_warning
        if is_away:
            self._next_warning = time.monotonic() + SECONDS_BETWEEN_WARNINGS
        bound = f"{self._limits.max_tries} tries" if self._limits.gives_up else f"{rest:.0f} s"
        words = "%s: %s; trying again in %.1f s, for at most %s"
        level = logging.WARNING if is_away else logging.INFO
        _log.log(level, words, self._url, self._shown(fault.sentence), seconds, bound)

    def _shown(self, text: str) -> str:
        text = " ".join(text.encode(errors="replace").decode().split())
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return masked(text)[:MESSAGE_CHARACTERS]


def is_own_machine(host: str) -> bool:
    """Return True if `host` is a name or an address of the loopback interface, in any form: localhost, ::1, 127.1."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith((".localhost", ".localdomain")):
        return True
    address = _address(name)
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped is not None and (mapped.is_loopback or mapped.is_unspecified)


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


def is_in_no_proxy(host: str) -> bool:
    """Return True if `host` is an address in a network of NO_PROXY, such as 10.0.0.0/8; httpx compares only names."""
    address = _address(host.strip("[]"))
    for entry in (os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")).split(","):
        try:
            if address and "/" in entry and address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False


def proxy_of(scheme: str, host: str) -> str:
    """Return the address of the environment's proxy for a host, without user and password; empty for none."""
    proxies = urllib.request.getproxies()
    proxy = "" if urllib.request.proxy_bypass(host) else proxies.get(scheme) or proxies.get("all", "")
    return masked(proxy)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(name))  # 127.1 and 0x7f.1, as curl and the C library read it
        except (OSError, UnicodeError):
            return None


def _tokens_at_most(body: dict[str, Any]) -> float:
    """Return an estimate of the tokens of a request and its answer, which is too high for most texts."""
    characters = sum(len(str(message["content"])) for message in body["messages"])
    made = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    return characters / CHARACTERS_A_TOKEN + int(made) * int(body.get("n") or 1)
