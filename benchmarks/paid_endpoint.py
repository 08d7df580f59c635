"""The endpoint of `paid_twice.py`: it answers after a while, counts what it charges, and fails as a provider does.

The text of row 77 gets the status 400, always. The first try of each of twenty rows gets the status 429. Each request
that is answered with 200 is charged, also if the client is dead by then. Batches are those of
tests/tasks/infer/batch_server.py, which charges for the answers of a batch that ended.
"""

import contextlib
import http.server
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.loopback import served
from tests.tasks.infer.batch_server import Batch, BatchServer, batch_server

SECONDS, BATCH_SECONDS = 0.3, 4.0
BAD, BUSY = 77, range(20, 40)
WORDS = "the text breaks a rule"
REFUSAL = {"error": {"message": WORDS, "type": "invalid_request_error", "code": None}}
SLOWLY = {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}


def text_of(row: int) -> str:
    return f"Describe product {row}"


@dataclass
class Endpoint:
    """`charged`: how often each text was answered. `kill` is called once, when `kill_after` answers are charged."""

    kill: Callable[[], None]
    kill_after: int
    charged: Counter[str] = field(default_factory=Counter)
    busy: set[str] = field(default_factory=lambda: {text_of(row) for row in BUSY})
    lock: Any = field(default_factory=threading.Lock)
    url: str = ""

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text = asked_text(body)
        with self.lock:
            if text in self.busy:
                self.busy.remove(text)
                return 429, SLOWLY
        time.sleep(SECONDS)
        if text in ("", text_of(BAD)):
            return 400, REFUSAL
        with self.lock:
            self.charged[text] += 1
            is_moment = self.charged.total() == self.kill_after
        if is_moment:
            self.kill()
        return 200, completion(text)


def asked_text(body: dict[str, Any]) -> str:
    """Return the text of the last message, which may be in parts; a request for limits has no message."""
    content = body["messages"][-1]["content"] if body["messages"] else ""
    return content if isinstance(content, str) else content[0]["text"]


def completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text[::-1]}
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


@contextlib.contextmanager
def online_endpoint(kill: Callable[[], None], kill_after: int) -> Iterator[Endpoint]:
    """Serve chat completions on the loopback address."""
    state = Endpoint(kill, kill_after)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # of the models, to see that the endpoint is up
            self._send(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

        def do_POST(self) -> None:
            self._send(*state.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def _send(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if status == 429:
                self.send_header("Retry-After", "1")
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the client may be dead
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with served(Handler) as url:
        state.url = f"{url}/v1"
        yield state


@contextlib.contextmanager
def batch_endpoint(kill: Callable[[], None]) -> Iterator[BatchServer]:
    """Serve batches; `kill` is called once, when a batch exists and its id has not reached the client."""
    with batch_server() as state:
        state.seconds = BATCH_SECONDS
        state.refused[text_of(BAD)] = (400, WORDS)
        state.kill_at["create-after"] = kill
        answer, shown, paid = state.answer, state.shown, Counter[str]()

        def counted(body: dict[str, Any], zeros: bool = False) -> dict[str, Any]:
            paid[asked_text(body)] += 1
            return answer(body, zeros)

        def dated(batch: Batch) -> dict[str, Any]:
            ended = {"completed_at": int(state.now())} if batch.state == "completed" else {}
            return {**shown(batch), **ended}

        state.answer, state.shown = counted, dated  # type: ignore[method-assign]
        state.paid = paid  # type: ignore[attr-defined]
        yield state


def charged_by(state: Endpoint | BatchServer) -> Counter[str]:
    """Return how often each text was charged, also in batches whose id the client never got."""
    if isinstance(state, Endpoint):
        return state.charged
    state.advance(BATCH_SECONDS)
    for batch in state.batches.values():
        state.move(batch)
    paid: Counter[str] = state.paid  # type: ignore[attr-defined]
    return paid
