"""A real HTTP server that speaks OpenAI's chat completions and fails as a test says, message by message."""

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

GONE_SECONDS = 5.0  # of an answer that does not come

MOOD = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"], "type": "string"}},
    "required": ["mood"],
    "additionalProperties": False,
}


@dataclass
class ChatServer:
    """`faults`: what befalls the next tries of a message, one each; `always`: all others of it; `down`: any request.

    A fault is a status with words and headers, `drop`, `cut`, `hang`, or the body of an answer. Other messages are
    answered with what `answer` makes of them, after `seconds`.
    """

    faults: dict[str, list[Any]] = field(default_factory=dict)
    always: dict[str, Any] = field(default_factory=dict)
    down: Any = None
    key: str = ""
    seconds: float = 0.0
    seen: list[tuple[float, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""
    lock: Any = field(default_factory=threading.Lock)

    def answer(self, body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"]
        if "response_format" in body:
            return json.dumps({"mood": "good" if len(text) % 2 else "bad"})
        return f"{body['messages'][0]['content']}|{text}"[::-1]


def completion(text: Any, message: dict[str, Any] | None = None, prompt: int = 7, reason: str = "stop") -> bytes:
    made = {"role": "assistant", "content": text, **(message or {})}
    words = len(str(text).split())
    usage = {"prompt_tokens": prompt, "completion_tokens": words, "total_tokens": 0}
    return json.dumps({"choices": [{"index": 0, "message": made, "finish_reason": reason}], "usage": usage}).encode()


@contextlib.contextmanager
def chat_server() -> Iterator[ChatServer]:
    state, under_way = ChatServer(), []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = body["messages"][-1]["content"]
            with state.lock:
                under_way.append(asked)
                state.most_at_once = max(state.most_at_once, len(under_way))
                state.seen.append((time.monotonic(), asked))
                state.bodies.append(body)
                own = state.faults.get(asked)
                fault = own.pop(0) if own else state.always.get(asked, state.down)
            try:
                self._respond(body, asked, fault)
            finally:
                with state.lock:
                    under_way.remove(asked)

        def _respond(self, body: dict[str, Any], asked: str, fault: Any) -> None:
            if state.key and self.headers.get("Authorization") != f"Bearer {state.key}":
                fault = (401, f"Incorrect API key provided: {self.headers.get('Authorization')}", {})
            if self.path.partition("?")[0] != "/v1/chat/completions":
                fault = (404, "Not Found", {})
            if fault == "hang":
                time.sleep(GONE_SECONDS)
            if fault in ("drop", "hang"):
                self.close_connection = True
                return
            if isinstance(fault, tuple):
                status, words, headers = fault
                self._send(status, json.dumps({"error": {"message": words}}).encode(), headers)
                return
            time.sleep(state.seconds)
            content = fault if isinstance(fault, bytes) else completion(state.answer(body))
            self._send(200, content, {}, cut=fault == "cut")
            with state.lock:
                state.answered.append(asked)

        def _send(self, status: int, content: bytes, headers: dict[str, str], cut: bool = False) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": len(content), **headers}.items():
                self.send_header(name, str(value))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # whoever asked may be dead
                self.wfile.write(content[: len(content) // 2] if cut else content)
            if cut:
                self.wfile.flush()
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            pass  # connections that whoever asked has left

    server = Server(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
