"""The cause of a failed request, and whether it can pass by itself: one table for all endpoints.

An error with status 200 counts by its `code`.
"""

import contextlib
import enum
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from overnight.tasks.infer.endpoint.rate_limits import seconds_to_wait

if TYPE_CHECKING:
    import httpx


# blame      answers                                             tries
# ROW        400, 413, 422, 451 and other 4xx; a filter; a 429   1
#            of a limit that this request alone exceeds
# KEY        401, 402, 403; no quota, no credit                  1; a 403 is the row's, if a test
#                                                                request succeeds
# SETTINGS   404, 405, 501, a redirect; an unknown model         1; the row's, if a test request succeeds
# LIMIT      429                                                 until `retry_timeout_seconds`; all wait
# SERVER     408, 409, 424, 5xx; a time-out, a cut connection,   `max_tries` if other requests succeed,
#            a web page, an answer that is not JSON              until `retry_timeout_seconds` otherwise
class Blame(enum.Enum):
    """The cause of a failed request."""

    ROW = "the row"
    KEY = "the key or the account"
    SETTINGS = "base_url, model or headers"
    LIMIT = "a limit per minute"
    SERVER = "the server"


BY_STATUS = {
    401: (Blame.KEY, "the server does not accept the key; see api_key_env and headers"),
    402: (Blame.KEY, "the server requires a payment"),
    403: (Blame.KEY, "the server does not allow this"),
    404: (Blame.SETTINGS, "no such path or model; see base_url and model"),
    405: (Blame.SETTINGS, "no such requests there; see base_url"),
    407: (Blame.SETTINGS, "the proxy of the environment requires a password"),
    408: (Blame.SERVER, ""),
    **dict.fromkeys((409, 423, 424, 425, 498, 499), (Blame.SERVER, "")),  # a model that loads, a cut request
    429: (Blame.LIMIT, ""),
    501: (Blame.SETTINGS, "no such requests there; see base_url"),
}
UNSURE = {403, 404, 405, 501}  # a firewall or a moderation before the model may refuse one row so
BY_CODE = {  # values of `code`, `type` or `status` in the error, more exact than the status of the answer
    **dict.fromkeys(("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"), Blame.KEY),
    **dict.fromkeys(("invalid_api_key", "api_key_invalid", "account_deactivated", "authentication_error"), Blame.KEY),
    **dict.fromkeys(("model_not_found", "deploymentnotfound", "deployment_not_found"), Blame.SETTINGS),
    **dict.fromkeys(("unsupported_parameter", "unsupported_value", "unknown_parameter"), Blame.SETTINGS),
    **dict.fromkeys(("content_filter", "content_policy_violation", "responsibleaipolicyviolation"), Blame.ROW),
    **dict.fromkeys(("context_length_exceeded", "string_above_max_length", "request_too_large"), Blame.ROW),
}
BY_CODE_AT_200 = {
    **dict.fromkeys(("rate_limit_exceeded", "rate_limit_error", "resource_exhausted"), Blame.LIMIT),
    **dict.fromkeys(("invalid_request_error", "badrequesterror", "invalid_argument"), Blame.ROW),
}
NO_CREDIT = "credit balance is too low"  # Anthropic's code for it is that of a wrong request

_TOO_LARGE = re.compile(r"request too large|(?:input|prompt|message) (?:is )?too (?:large|long)", re.IGNORECASE)
_LIMIT = re.compile(r"\blimit:? ?([\d,]+)", re.IGNORECASE)
_REQUESTED = re.compile(r"\brequested:? ?([\d,]+)", re.IGNORECASE)
_TAG, _TITLE = re.compile(r"<[^>]*>"), re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


@dataclass
class Fault(Exception):
    """A request without an answer."""

    blame: Blame
    sentence: str  # with the server's own words, in which `Endpoint` masks secrets
    advice: str = ""
    retry_after: float | None = None  # seconds to wait, if the server names them
    is_sure: bool = True  # a test request cannot change the blame

    @property
    def passes(self) -> bool:
        """Return True if the same request may succeed later."""
        return self.blame in (Blame.LIMIT, Blame.SERVER)


def fault_of(response: "httpx.Response") -> Fault:
    """Return the fault of a response with a status other than 200."""
    payload = None
    with contextlib.suppress(ValueError, RecursionError):
        payload = json.loads(response.content)
    words = words_of(payload) or words_of_text(response.text)
    if target := response.headers.get("location"):
        words = f"it redirects to {target} {words}".rstrip()
    if isinstance(payload, list) and payload:
        payload = payload[0]
    error = payload.get("error") or payload if isinstance(payload, dict) else payload
    status = response.status_code
    return _classified(status, error, words, f"HTTP {status}: {words}", seconds_to_wait(response.headers))


def fault_in(error: Any) -> Fault:
    """Return the fault that an error in an answer with status 200 describes."""
    status = 200
    for code in _codes(error):
        if code.isdigit() and 300 <= int(code) < 600:
            status = int(code)
            break
    words = words_of(error) or str(error)
    number = "an error" if status == 200 else f"error {status}"
    return _classified(status, error, words, f"{number} with status 200: {words}", None)


def _classified(status: int, error: Any, words: str, sentence: str, wait: float | None) -> Fault:
    blame, advice = BY_STATUS.get(status, (_of_range(status), ""))
    blame_by_code = _blame_by_code(status, error, words)
    if blame_by_code and blame_by_code is not blame:
        blame, advice = blame_by_code, ""
    if status == 401:
        sentence = sentence.removesuffix(words).rstrip(": ")  # the words may have a part of the key
    if blame is Blame.LIMIT and exceeds_alone(words):
        blame = Blame.ROW
    if blame is Blame.SETTINGS and not advice:
        advice = "see base_url, model and extra_body"
    is_sure = blame_by_code is not None or status not in UNSURE
    return Fault(blame, sentence, advice, wait, is_sure)


def _blame_by_code(status: int, error: Any, words: str) -> Blame | None:
    if NO_CREDIT in words:
        return Blame.KEY
    table = BY_CODE | BY_CODE_AT_200 if status == 200 else BY_CODE
    for code in (*_codes(error), words.strip().lower()):
        if code in table:
            return table[code]
    return None


def _of_range(status: int) -> Blame:
    if status >= 500 or status == 200:
        return Blame.SERVER
    if status >= 400:
        return Blame.ROW
    return Blame.SETTINGS


def exceeds_alone(words: str) -> bool:
    """Return True if the words show that the request alone exceeds the limit, so that no wait helps."""
    limit, request = _LIMIT.search(words), _REQUESTED.search(words)
    if limit and request:
        return int(request[1].replace(",", "") or 0) > int(limit[1].replace(",", "") or 0)
    return bool(_TOO_LARGE.search(words))


def words_of(payload: Any) -> str:
    """Return the sentence of an error in the JSON of an answer, or an empty text."""
    for _ in range(4):
        if isinstance(payload, list) and payload:
            payload = payload[0]
        elif isinstance(payload, dict):
            payload = next(filter(None, map(payload.get, ("error", "message", "detail", "msg"))), None)
    return payload if isinstance(payload, str) else ""


def words_of_text(text: str) -> str:
    """Return the words of an answer that is not JSON: the title of a web page, otherwise its text."""
    if title := _TITLE.search(text):
        return title[1].strip()
    return _TAG.sub(" ", text) if text.lstrip().startswith("<") else text


def _codes(error: Any) -> list[str]:
    if not isinstance(error, dict):
        return []
    codes = list(map(error.get, ("code", "type", "status")))
    if isinstance(error.get("innererror"), dict):
        codes.append(error["innererror"].get("code"))
    return [str(code).lower() for code in codes if isinstance(code, str | int) and code]
