"""A client of one OpenAI-compatible endpoint: it sends requests for chat completions, and tries again if that may help.

After the last try, the error shows the cause:

    the row         a 4xx about the request; an answer without a text; a 5xx, a time-out, a cut connection or an
                    invalid answer after `max_tries` or `retry_timeout_seconds`, while other requests succeed. If no
                    other request succeeded meanwhile, a short one tests the service
    the service     no request succeeds for all of `retry_timeout_seconds`, or too many requests (429) all that time:
                    `ServiceUnavailable`, and `infer` is tried again
    the settings    401, 402, 403, no quota: `AccessDenied`. 404, a redirect: `JobError`

`Retry-After` is respected, and after a 429 delays all requests. No message and no log contains the key.
"""

import asyncio
import json
import logging
import math
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from overnight.tasks.config.masking import HIDDEN, masked
from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import AccessDenied, JobError, RowError, ServiceUnavailable
from overnight.tasks.infer.chat.rate_limiter import RateLimiter
from overnight.tasks.infer.chat.settings import Answer

if TYPE_CHECKING:
    import httpx

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 8.0
CHARACTERS_A_TOKEN = 4  # for tokens per minute, until the response has the number
MESSAGE_CHARACTERS = 300
SHORTEST_SECRET = 6  # minimum characters of a value in the query that is masked in responses
REFUSED = {
    401: "the server does not accept the key; see api_key_env",
    402: "the server requires a payment",
    403: "the server does not allow this",
}
WRONG = {404: "no such path or model; see base_url and model", 405: "no chat completions there; see base_url"}

REASONING = ("reasoning_content", "reasoning")  # fields of DeepSeek, SGLang and older vLLM, and of vLLM and gateways

_log = logging.getLogger("overnight.endpoint")


@dataclass(frozen=True)
class RetryLimits:
    """The limits of a request to a chat endpoint.

    `timeout_seconds` is the time for one response, and `retry_timeout_seconds` the time for all tries. After
    `max_tries` tries, the request itself counts as the cause of its failure, if other requests succeed.
    """

    timeout_seconds: float
    retry_timeout_seconds: float
    max_tries: int


class _TransientError(Exception):
    """An error that may not come again. `after` is the server's number of seconds to wait, if it sends one."""

    def __init__(self, what: str, after: float | None = None, is_limit: bool = False, is_answer: bool = False) -> None:
        super().__init__(what)
        self.after, self.is_limit, self.is_answer = after, is_limit, is_answer


class Endpoint:
    """A client of one endpoint, for one event loop, with at most `at_once` requests at a time.

    `url` is the endpoint's URL without `/chat/completions`. `key` is the API key; None sends no key. Error messages
    show `url` without the values of its query, and never `key`. `limits` bounds the time and the tries of each request.
    `requests` limits the requests per minute, and `tokens` their tokens. An answer must have `texts` texts. Raises
    `JobError` if `url` is not an HTTP URL with a host.
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
    ) -> None:
        import httpx

        if not url.startswith(("http://", "https://")) or not httpx.URL(url).host:
            raise JobError("base_url: expected http:// or https:// and a host, found another form.", "infer")
        logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise it logs a line per request
        asked = httpx.URL(url)
        self._url, self._limits = masked(url.rstrip("/")), limits
        self._retries = RetryPolicy(limits.max_tries, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        self._asked = asked.copy_with(path=f"{asked.path.rstrip('/')}/chat/completions")  # before the query
        values = [value for value in asked.params.values() if len(value) >= SHORTEST_SECRET]
        self._secrets = [secret for secret in (key, *values) if secret]
        self._requests, self._tokens, self._texts = requests, tokens, texts
        self._client = httpx.AsyncClient(
            trust_env="//127.0.0.1" not in url,  # no proxy for this machine
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once),
        )
        self._slots, self._seeing = asyncio.Semaphore(at_once), asyncio.Lock()
        self._not_before = self._last_success = 0.0

    async def ask(self, body: dict[str, Any]) -> Answer:
        """Send a request with the JSON object `body`, try again if that may help, and return the answer.

        Raise `RowError` if this request is the cause of a failure. Raise `AccessDenied` or `JobError` if the key or the
        settings are the cause, and `ServiceUnavailable` if no request succeeds.
        """
        async with self._slots:
            return await self._post_with_retries(body)

    async def _post_with_retries(self, body: dict[str, Any]) -> Answer:
        spent, tries, knows = 0.0, 0, False
        while True:
            await self._turn(body)
            began, tries = time.monotonic(), tries + 1
            left = self._limits.retry_timeout_seconds - spent
            try:
                return await self._once(body, min(self._limits.timeout_seconds, max(left, 1.0)), self._texts)
            except _TransientError as error:
                problem = error
            seconds = self._retries.wait_seconds(tries) if problem.after is None else problem.after
            spent += time.monotonic() - began + seconds  # without the waits for the limits per minute
            is_over = spent >= self._limits.retry_timeout_seconds
            if not problem.is_limit and (is_over or tries + 1 >= self._limits.max_tries):
                knew, knows = knows, problem.is_answer or await self._answers_others(body, began)
                if knows and (knew or is_over):  # not the first time: the service may have recovered just then
                    raise RowError(f"{problem}, in {tries} tries; other requests succeed.")
            if is_over:
                raise ServiceUnavailable(
                    f"{self._url}: no request succeeded in {tries} tries and {spent:.0f} s: {problem}. The answers "
                    "so far are kept; run again to resume."
                    + (" Set requests_per_minute to its limit." if problem.is_limit else ""),
                    "infer",
                )
            if problem.is_limit:
                self._not_before = max(self._not_before, time.monotonic() + seconds)
            _log.info("%s: %s; trying again in %.1f s", self._url, problem, seconds)
            await asyncio.sleep(seconds)

    async def _turn(self, body: dict[str, Any]) -> None:
        while (seconds := self._not_before - time.monotonic()) > 0:
            await asyncio.sleep(seconds)
        await self._tokens.wait(_tokens_at_most(body))
        await self._requests.wait()

    async def _answers_others(self, body: dict[str, Any], since: float) -> bool:
        """Return True if another request has succeeded since `since`, or a short test request succeeds now."""
        async with self._seeing:
            if self._last_success > since:
                return True
            harmless: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
            harmless |= {name: 1 for name in ("max_tokens", "max_completion_tokens") if name in body}
            try:
                await self._once({"model": body["model"], **harmless}, min(self._limits.timeout_seconds, 20.0))
            except (_TransientError, RowError):
                return False
            return True

    async def _once(self, body: dict[str, Any], seconds: float, texts: int = 1) -> Answer:
        import httpx

        try:
            async with asyncio.timeout(seconds):
                response = await self._client.post(self._asked, json=body, timeout=None)
        except TimeoutError:
            raise _TransientError(f"no answer within {seconds:.3g} s") from None
        except httpx.TransportError as error:
            raise _TransientError(f"{type(error).__name__}: {self._shown(str(error))}") from None
        if response.status_code != 200:
            raise self._refusal(response)
        answer = self._answer(response.content, texts)
        self._last_success = time.monotonic()
        if answer.prompt_tokens is not None and answer.completion_tokens is not None:
            self._tokens.correct(answer.prompt_tokens + answer.completion_tokens - _tokens_at_most(body))
        return answer

    def _refusal(self, response: "httpx.Response") -> Exception:
        status = response.status_code
        what = f"HTTP {status}: {self._shown(_told(response))}"
        if status in REFUSED:  # without its text, which may contain the key
            return AccessDenied(f"{self._url}: HTTP {status}: {REFUSED[status]}.", "infer")
        if status == 429 and "insufficient_quota" in response.text:
            return AccessDenied(f"{self._url}: {what}", "infer")
        if status in WRONG or status < 400:
            return JobError(f"{self._url}: {WRONG.get(status, 'expected an answer')}: {what}", "infer")
        if status in (408, 409, 425, 429) or (status >= 500 and status != 501):
            return _TransientError(what, _retry_after(response), is_limit=status == 429)
        return RowError(f"expected an answer, found {what}")

    def _answer(self, content: bytes, texts: int) -> Answer:
        try:
            found = json.loads(content)
            choices = [found["choices"][place] for place in range(texts)]
            messages = [choice["message"] for choice in choices]
            made = [
                (_text(message["content"]), _text(choice.get("finish_reason")), _reasoning(message))
                for message, choice in zip(messages, choices, strict=True)
            ]
            usage = found.get("usage") or {}
            counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            shown = self._shown(content[:80].decode(errors="replace"))
            several = f" with {texts} choices" if texts > 1 else ""
            raise _TransientError(f"expected a chat completion{several}, found {shown!r}", is_answer=True) from None
        for message, (text, reason, reasoning) in zip(messages, made, strict=True):
            if text is None and reasoning is None:
                why = message.get("refusal") or f"finish_reason {reason}"
                raise RowError(f"expected a text as answer, found none: {self._shown(str(why))}")
        if not all(count is None or isinstance(count, int) for count in counts):
            raise _TransientError(f"expected numbers of tokens, found {counts}", is_answer=True)
        (text, reason, reasoning), *others = made
        return Answer(text, counts[0], counts[1], reason, reasoning, others=others)

    def _shown(self, text: str) -> str:
        text = " ".join(text.split())
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return masked(text)[:MESSAGE_CHARACTERS]


def _tokens_at_most(body: dict[str, Any]) -> float:
    """Return an estimate of the tokens of a request and its answer, which is too high for most texts."""
    characters = sum(len(str(message["content"])) for message in body["messages"])
    made = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    return characters / CHARACTERS_A_TOKEN + int(made) * int(body.get("n") or 1)


def _told(response: "httpx.Response") -> str:
    try:
        error = response.json()["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, LookupError, TypeError, RecursionError):
        return response.text


def _retry_after(response: "httpx.Response") -> float | None:
    """Return the seconds of the header Retry-After, a number or a date; None if it is missing or unreadable."""
    value = response.headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return None if math.isnan(seconds) else max(seconds, 0.0)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _reasoning(message: dict[str, Any]) -> str | None:
    """Return the reasoning that a server returns apart from the answer."""
    return next((found for name in REASONING if (found := _text(message.get(name)))), None)
