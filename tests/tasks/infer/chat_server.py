"""A real HTTP server that speaks OpenAI's chat completions and fails as a test says, message by message."""

import contextlib
import http.server
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from tests.loopback import served

MOOD = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"], "type": "string"}},
    "required": ["mood"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Reply:
    """What the server sends: a body of bytes, or a value as JSON, of which `share` arrives before the connection ends.

    A `status` of None sends nothing at all, after `seconds`.
    """

    status: int | None = 200
    body: Any = b""
    headers: tuple[tuple[str, str], ...] = ()
    share: float = 1.0
    seconds: float = 0.0

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def refusal(status: int, message: str, *headers: tuple[str, str], **more: Any) -> Reply:
    """An error in OpenAI's form."""
    return Reply(status, {"error": {"message": message, **more}}, headers)


@dataclass
class RequestLimit:
    """A limit of `most` requests in `seconds`: a window of time, or a bucket that refills steadily if `refills`."""

    most: int
    seconds: float
    refills: bool = False
    is_anthropics: bool = False  # its headers
    refused: int = 0
    remaining: float = 0.0
    last_time: float = 0.0

    def headers_of_next(self) -> tuple[bool, list[tuple[str, str]]]:
        """Return whether the next request may pass, and the headers of its response."""
        now = time.monotonic()
        if self.refills:
            refilled = (now - self.last_time) * self.most / self.seconds
            self.remaining, self.last_time = min(self.remaining + refilled, self.most), now
        elif now - self.last_time >= self.seconds:
            self.remaining, self.last_time = self.most, now
        passes = self.remaining >= 1
        self.remaining -= passes
        self.refused += not passes
        seconds = (self.most - self.remaining) * self.seconds / self.most
        if not self.refills:
            seconds = self.last_time + self.seconds - now
        if self.is_anthropics:
            reset = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
            names = ["anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"]
        else:
            reset = f"{seconds:.3f}s"
            names = ["x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"]
        return passes, list(zip(names, [str(int(self.remaining)), reset], strict=True))


@dataclass
class ChatServer:
    """`faults`: what befalls the next tries of a message, one each; `always`: all others of it; `down`: any request.

    A fault is a `Reply`, its status with words and headers, or the body of an answer. Other messages are answered with
    what `answer` makes of them, after `seconds`.
    """

    faults: dict[str, list[Any]] = field(default_factory=dict)
    always: dict[str, Any] = field(default_factory=dict)
    down: Any = None
    limit: RequestLimit | None = None
    key: str = ""
    seconds: float = 0.0
    seen: list[tuple[float, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""
    lock: Any = field(default_factory=threading.Lock)

    def serves(self, path: str) -> bool:
        return path.endswith("/v1/chat/completions")

    def asked(self, body: dict[str, Any]) -> list[str]:
        """The texts of a request, by which `faults`, `always` and `seen` know it."""
        return [asked_text(body)]

    def answer(self, body: dict[str, Any]) -> str:
        text = asked_text(body)
        if "response_format" in body:
            return json.dumps({"mood": "good" if len(text) % 2 else "bad"})
        return f"{body['messages'][0]['content']}|{text}"[::-1]

    def requests(self) -> Counter[str]:
        """How often each message was asked."""
        return Counter(text for _, text in self.seen)

    def reply(self, fault: Any, body: dict[str, Any]) -> Reply:
        """Return a fault, or the answer without one, as a `Reply`."""
        if isinstance(fault, Reply):
            return fault
        if isinstance(fault, tuple):
            status, words, headers = fault
            return refusal(status, words, *headers.items())
        content = fault if isinstance(fault, bytes) else completion(self.answer(body))
        return Reply(200, content, seconds=self.seconds)


S = TypeVar("S", bound=ChatServer)


def asked_text(body: dict[str, Any]) -> str:
    """The text of the last message: of its parts those of text."""
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return " ".join(part["text"] for part in content if part["type"] == "text")


def completion(text: Any, message: dict[str, Any] | None = None, prompt: int = 7, reason: str = "stop") -> bytes:
    made = {"role": "assistant", "content": text, **(message or {})}
    words = len(str(text).split())
    usage = {"prompt_tokens": prompt, "completion_tokens": words, "total_tokens": 0}
    return json.dumps({"choices": [{"index": 0, "message": made, "finish_reason": reason}], "usage": usage}).encode()


@contextlib.contextmanager
def chat_server() -> Iterator[ChatServer]:
    with server_of(ChatServer()) as state:
        yield state


@contextlib.contextmanager
def server_of(state: S) -> Iterator[S]:
    """Run the server of this state, on a free port of the loopback address."""
    under_way: list[list[str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = state.asked(body)
            with state.lock:
                under_way.append(asked)
                state.most_at_once = max(state.most_at_once, len(under_way))
                state.seen += [(time.monotonic(), text) for text in asked]
                state.bodies.append(body)
                state.headers.append(self.headers)
                fault = state.down
                for text in asked:
                    own = state.faults.get(text)
                    fault = own.pop(0) if own else state.always.get(text, fault)
            try:
                self._respond(body, asked, fault)
            finally:
                with state.lock:
                    under_way.remove(asked)

        def _respond(self, body: dict[str, Any], asked: list[str], fault: Any) -> None:
            if state.key and self.headers.get("Authorization") != f"Bearer {state.key}":
                fault = (401, f"Incorrect API key provided: {self.headers.get('Authorization')}", {})
            if not state.serves(self.path.partition("?")[0]):  # a proxy gets the whole URL
                fault = (404, "Not Found", {})
            headers: list[tuple[str, str]] = []
            if state.limit:
                with state.lock:
                    passes, headers = state.limit.headers_of_next()
                if not passes:
                    fault = refusal(429, "Rate limit reached")
            reply = state.reply(fault, body)
            reply = replace(reply, headers=(*reply.headers, *headers))
            time.sleep(reply.seconds)
            if reply.status is None:
                self.close_connection = True
                return
            self._send(reply)
            if reply.status == 200:
                with state.lock:
                    state.answered += asked

        def _send(self, reply: Reply) -> None:
            own = {name.lower() for name, _ in reply.headers}
            usual = [("Content-Type", "application/json"), ("Content-Length", str(len(reply.content)))]
            self.send_response(reply.status or 0)
            for name, value in [pair for pair in usual if pair[0].lower() not in own] + list(reply.headers):
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # whoever asked may be dead
                self.wfile.write(reply.content[: int(len(reply.content) * reply.share)])
                self.wfile.flush()
            if reply.share < 1:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with served(Handler) as url:
        state.url = f"{url}/v1"
        yield state
