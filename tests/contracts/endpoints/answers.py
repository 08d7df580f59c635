"""The table of answers that real gateways give: what each costs, and what becomes of the row.

The bodies are those of OpenAI, Azure, Mistral, Groq, OpenRouter, vLLM, Gemini's compatible endpoint and of web servers.
"""

from dataclasses import dataclass
from typing import Any

from tests.tasks.infer.chat_server import Reply, completion, refusal

HTML = ("Content-Type", "text/html")
PAGE = b"<!doctype html><html><head><title>Sign in</title></head><body><form>...</form></body></html>"
BAD_GATEWAY = b"<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center></body>"
TOO_LARGE = "Request too large for m on tokens per min (TPM): Limit 30000, Requested 36278. The input must be reduced."
SLOW_DOWN = "Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 29000, Requested 1200."


USAGE = {"prompt_tokens": 10, "completion_tokens": 5}


def choice(message: Any = None, reason: Any = "stop", index: Any = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "message": {"role": "assistant", **(message or {})}, "finish_reason": reason, **more}


def one(**more: Any) -> Reply:
    """An answer with one choice, and a usage of the case's own."""
    return Reply(200, {"choices": [choice({"content": "391"})], **more})


def sent(*headers: tuple[str, str], before: bytes = b"") -> Reply:
    return Reply(200, before + completion("391", prompt=10), headers)


def body(*choices: dict[str, Any], **more: Any) -> Reply:
    return Reply(200, {"choices": list(choices), "usage": USAGE, **more})


@dataclass(frozen=True)
class Paid:
    """An answer with status 200, and the row's text and reasoning, or the words of its reason."""

    reply: Reply
    text: Any = None
    reason: str = ""
    reasoning: str | None = None
    settings: str = ""  # a key of SETTINGS
    tokens: Any = (10, 5)


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "17 * 23 is"}]}
TEXT = {"type": "text", "text": "391"}
SETTINGS: dict[str, dict[str, Any]] = {
    "": {},
    "three texts": {"num_return_sequences": 3, "temperature": 1},
    "a schema": {"output_schema": {"properties": {"mood": {"enum": ["good", "bad"]}}}},
}
CALL = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
LONG = "a flagged thought " * 1000


def said(content: Any, text: Any = None, reason: str = "", reasoning: str | None = None, **message: Any) -> Paid:
    """One choice of this content."""
    return Paid(body(choice({"content": content, **message})), text, reason, reasoning)


PAID = {
    "parts": said([THINKING, TEXT], "391", reasoning="17 * 23 is"),
    "parts, thinking as a text": said([{"type": "thinking", "thinking": "hm"}, TEXT], "391", reasoning="hm"),
    "parts of text alone": said([TEXT, {"type": "text", "text": "!"}], "391!"),
    "parts without a type": said(["3", {"text": "91"}], "391"),
    "one part": said(TEXT, "391"),
    "parts, refused": said([{"type": "refusal", "refusal": "I will not"}], reason="I will not"),
    "parts of another type": said([{"type": "image_url", "image_url": {"url": "x"}}], reason="image_url"),
    "no parts": said([], reason="finish_reason stop"),
    "content null": Paid(body(choice({"content": None}, "content_filter")), reason="content_filter"),
    "content missing": Paid(body(choice({})), reason="finish_reason stop"),
    "content a number": said(391, reason="391"),
    "content empty": said("", ""),
    "message null": Paid(body({"index": 0, "message": None, "finish_reason": "stop"}), reason="message"),
    "message missing": Paid(body({"index": 0, "text": "391", "finish_reason": "stop"}), reason="message"),
    "refused": said(None, reason="I will not", refusal="I will not"),
    "refused at length": said(None, reason="a flagged thought", refusal=LONG),
    "half a surrogate refused": said(None, reason="no", refusal="\ude00 no"),
    "filtered in part": Paid(body(choice({"content": "39"}, "content_filter")), "39"),
    "finish_reason null": Paid(body(choice({"content": "391"}, None)), "391"),
    "a call of a tool": said(None, reason="look_up", tool_calls=[CALL]),
    "no choices": Paid(body(), reason="choices"),
    "choices null": Paid(Reply(200, {"choices": None, "usage": USAGE}), reason="choices"),
    "reasoning_content": said("391", "391", reasoning="hm", reasoning_content="hm"),
    "fewer than asked": Paid(body(choice({"content": "391"})), reason="num_return_sequences", settings="three texts"),
    "one of three filtered": Paid(
        body(choice({"content": "0"}), choice({}, "content_filter", 1), choice({"content": "2"}, index=2)),
        reason="content_filter",
        settings="three texts",
    ),
    "three": Paid(
        body(*(choice({"content": str(i)}, index=i) for i in (2, 0, 1))), ["0", "1", "2"], settings="three texts"
    ),
    "no usage": Paid(one(), "391", tokens=(None, None)),
    "usage of a list": Paid(one(usage=[]), "391", tokens=(None, None)),
    "usage beyond 64 bits": Paid(
        one(usage={"prompt_tokens": 2**70, "completion_tokens": 5.0}), "391", tokens=(None, 5)
    ),
    "error null": Paid(body(choice({"content": "391"}), error=None), "391"),
    "another type": Paid(sent(("Content-Type", "text/plain")), "391", tokens=(10, 1)),
    "a BOM": Paid(sent(before=b"\xef\xbb\xbf"), "391", tokens=(10, 1)),
    "headers twice": Paid(sent(("X-Id", "1"), ("X-Id", "2"), ("Set-Cookie", "a")), "391", tokens=(10, 1)),
    "not the schema": Paid(
        body(choice({"content": '{"mood": "odd"}'})), reason="'odd' is not one of", settings="a schema"
    ),
}  # fmt: skip

# The row is refused, and no other. Each is asked once, and the reason has the server's own words.
REFUSED_ROWS = {
    "400": refusal(400, "maximum context length is 8 tokens"),
    "400 filter": refusal(400, "The response was filtered due to the prompt", code="content_filter"),
    "400 of FastAPI": Reply(400, {"detail": "the prompt is odd"}),
    "400 of older vLLM": Reply(400, {"object": "error", "message": "the prompt is odd", "code": 400}),
    "400 in a list": Reply(400, [{"error": {"message": "the prompt is odd", "status": "INVALID_ARGUMENT"}}]),
    "403 flagged": refusal(403, "Your input was flagged by moderation.", metadata={"reasons": ["violence"]}),
    "403 of a firewall": Reply(403, b"<html><title>Attention Required!</title></html>", (HTML,)),
    "404 of one row": refusal(404, "No endpoint allows this input"),
    "413": refusal(413, "Request too large, please reduce your message size", code="rate_limit_exceeded"),
    "413 of nginx": Reply(413, b"<html><head><title>413 Request Entity Too Large</title></head></html>", (HTML,)),
    "422": Reply(422, {"detail": [{"loc": ["body"], "msg": "the prompt is odd"}]}),
    "451": refusal(451, "not for legal reasons"),
    "429 too large": refusal(429, TOO_LARGE, type="tokens", code="rate_limit_exceeded"),
    "429 too large, in words": refusal(429, "Request too large. Reduce it.", type="tokens"),
    "200 with 400": Reply(200, {"error": {"message": "the prompt is odd", "code": 400}}),
    "200 with 403": Reply(200, {"error": {"message": "flagged by moderation", "code": 403}}),
    "a choice with an error": Reply(
        200, {"choices": [{"index": 0, "error": {"message": "flagged by moderation", "code": 403}}]}
    ),
}
WORDS = {
    "403 of a firewall": "Attention Required!",
    "413 of nginx": "413 Request Entity Too Large",
}

# These pass: each is met once, and the next try succeeds.
PASSING = {
    "429": refusal(429, SLOW_DOWN),
    "429 with Retry-After": refusal(429, SLOW_DOWN, ("Retry-After", "0.2")),
    "429 with two": refusal(429, SLOW_DOWN, ("Retry-After", "0.1"), ("Retry-After", "0.2")),
    "429 with milliseconds": refusal(429, SLOW_DOWN, ("retry-after-ms", "200")),
    "429 with a reset": refusal(
        429, SLOW_DOWN, ("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "200ms")
    ),
    "408": refusal(408, "too slow"),
    "409": refusal(409, "conflict"),
    "500": refusal(500, "The server had an error"),
    "502 page": Reply(502, BAD_GATEWAY, (HTML,)),
    "503": refusal(503, "overloaded", ("Retry-After", "0.1")),
    "529": refusal(529, "overloaded"),
    "200 with 503": Reply(200, {"error": {"message": "model overloaded", "code": 503}}),
    "200 with an error": Reply(200, {"error": "upstream"}),
    "200 with 429": Reply(200, {"error": {"message": SLOW_DOWN, "code": "rate_limit_exceeded"}}),
    "page with status 200": Reply(200, PAGE, (HTML,)),
    "closed before": Reply(None),
    "closed within": Reply(200, completion("391"), share=0.5),
    "closed without a length": Reply(200, completion("391"), (("Transfer-Encoding", "chunked"),)),
    "cut JSON": Reply(200, completion("391")[:40]),
    "empty": Reply(200, b""),
    "broken gzip": Reply(200, b"no gzip", (("Content-Encoding", "gzip"),)),
    "no JSON": Reply(200, b"OK"),
    "a list": Reply(200, [1, 2]),
    "deep": Reply(200, b"[" * 100_000),
    "no answer in time": Reply(None, seconds=2.5),
}

# Nothing succeeds: the error's type, and words of the message.
EVERY_REQUEST: dict[str, tuple[Reply, str, str]] = {
    "401": (refusal(401, "Incorrect API key provided: sk-"), "AccessDenied", "HTTP 401"),
    "402": (refusal(402, "Insufficient credits"), "AccessDenied", "Insufficient credits"),
    "403": (refusal(403, "Country not supported"), "AccessDenied", "Country not supported"),
    "403 page": (Reply(403, b"<html><title>Forbidden</title></html>", (HTML,)), "AccessDenied", "Forbidden"),
    "400 key": (refusal(400, "API key not valid", code="invalid_api_key"), "AccessDenied", "API key not valid"),
    "400 credit": (refusal(400, "Your credit balance is too low"), "AccessDenied", "credit balance"),
    "quota": (
        refusal(429, "You exceeded your current quota", type="insufficient_quota", code="insufficient_quota"),
        "AccessDenied", "exceeded your current quota",
    ),
    "200 with 401": (Reply(200, {"error": {"message": "no such user", "code": 401}}), "AccessDenied", "401"),
    "404 model": (refusal(404, "The model `m` does not exist", code="model_not_found"), "JobError", "`m` does not"),
    "404 deployment": (
        refusal(404, "The API deployment for this resource does not exist", code="DeploymentNotFound"),
        "JobError", "API deployment",
    ),
    "400 setting": (
        refusal(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.", code="unsupported_parameter"),
        "JobError", "max_completion_tokens",
    ),
    "404 page": (Reply(404, b"<html><title>Not here</title></html>", (HTML,)), "JobError", "Not here"),
    "405": (refusal(405, "Method Not Allowed"), "JobError", "Method Not Allowed"),
    "redirect": (Reply(301, b"", (("Location", "https://other/v1?key=secret-1"),)), "JobError", "https://other/v1"),
    "redirect 307": (Reply(307, b"", (("Location", "/login"),)), "JobError", "/login"),
    "202": (Reply(202, {"status": "queued"}), "JobError", "HTTP 202"),
    "501": (refusal(501, "not implemented"), "JobError", "not implemented"),
}  # fmt: skip
AWAY: dict[str, tuple[Reply, str]] = {
    "503": (refusal(503, "the server restarts"), "the server restarts"),
    "429": (refusal(429, SLOW_DOWN), "requests_per_minute"),
    "login page": (Reply(200, PAGE, (HTML,)), "Sign in"),
    "closed": (Reply(None), "RemoteProtocolError"),
    "tomorrow": (refusal(429, "come back tomorrow", ("Retry-After", "86400")), "come back tomorrow"),
}


def words_of(reply: Reply) -> str:
    """The sentence of an error in any of its forms."""
    found = reply.body
    if isinstance(found, bytes):
        return ""
    while not isinstance(found, str):
        found = next(found[key] for key in KEYS if key in found) if isinstance(found, dict) else found[0]
    return found


KEYS = ("error", "choices", "message", "detail", "msg")
