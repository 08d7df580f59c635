"""A real HTTP server with OpenAI's files and batches, on a clock that tests move, which fails batch by batch.

`faults` has, for the number of each create, the names of what befalls its batch:
create_dropped, create_503, list_late, token_limit, failed, expired (a third is done), only_errors, no_files,
line_missing, line_doubled, line_cut, content_502, content_cut, content_gone, poll_429, stuck, cancel_completes,
usage_zeros, upper_case; look_404, results_late and content_404 (as if they did not exist, once).
"""

import contextlib
import http.server
import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.loopback import served

LATE_SECONDS = 120.0


@dataclass
class Batch:
    id: str
    file: str
    faults: set[str]
    created_at: float
    metadata: dict[str, str]
    endpoint: str
    state: str = "validating"
    cancelled_at: float | None = None
    output: str | None = None
    errors_file: str | None = None
    completed: int = 0
    failed: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    polls_refused: int = 2
    reads_refused: int = 2
    absences: set[str] = field(default_factory=lambda: {"look_404", "results_late", "content_404"})

    def is_absent(self, fault: str) -> bool:
        """Return True once, if the batch has this fault."""
        if fault not in self.faults & self.absences:
            return False
        self.absences.remove(fault)
        return True


@dataclass
class BatchServer:
    """`refused`: texts with their refusal. `charged` counts the requests of batches by key, `online` others by text."""

    faults: dict[int, set[str]] = field(default_factory=dict)
    seconds: float = 3600.0  # of a batch
    cancel_seconds: float = 5.0
    day: float = 86400.0  # after which a batch expires
    key: str = ""
    is_together: bool = False
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)  # texts whose rows have no response
    kill_at: dict[str, Callable[[], None]] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)
    charged: Counter[str] = field(default_factory=Counter)
    online: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    offset: float = 0.0
    url: str = ""
    lock: Any = field(default_factory=threading.RLock)

    def now(self) -> float:
        return time.time() + self.offset

    def advance(self, seconds: float) -> None:
        self.offset += seconds

    def answer(self, body: dict[str, Any], zeros: bool = False) -> dict[str, Any]:
        text = body["messages"][-1]["content"]
        message = {"role": "assistant", "content": text[::-1]}
        usage = {"prompt_tokens": 0 if zeros else 7, "completion_tokens": 0 if zeros else 3, "total_tokens": 10}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}

    def add_file(self, name: str, content: bytes, purpose: str) -> dict[str, Any]:
        id = f"file-{len(self.files):05}"
        self.contents[id] = content
        self.files[id] = {
            "id": id,
            "object": "file",
            "filename": name,
            "purpose": purpose,
            "bytes": len(content),
            "created_at": int(self.now()),
            "status": "processed",
        }
        return self.files[id]

    def create(self, body: dict[str, Any]) -> Batch:
        number = len(self.batches)
        batch = Batch(
            f"batch-{number:05}",
            body["input_file_id"],
            self.faults.get(number, set()),
            self.now(),
            body.get("metadata") or {},
            body["endpoint"],
        )
        self.batches[batch.id] = batch
        return batch

    def move(self, batch: Batch) -> None:
        """Bring a batch to its state of this moment."""
        if batch.state in ("completed", "failed", "expired", "cancelled"):
            return
        age, faults = self.now() - batch.created_at, batch.faults
        if faults & {"token_limit", "failed"}:
            code = "token_limit_exceeded" if "token_limit" in faults else "model_not_found"
            batch.state, batch.errors = "failed", [{"code": code, "message": f"words of {code}", "line": None}]
        elif batch.cancelled_at is not None:
            share = min((batch.cancelled_at - batch.created_at) / self.seconds, 1.0) * ("stuck" not in faults)
            batch.state = "cancelling"
            if self.now() >= batch.cancelled_at + self.cancel_seconds:
                whole = "cancel_completes" in faults
                self.end(batch, "completed" if whole else "cancelled", 1.0 if whole else share)
        elif "expired" in faults or "stuck" in faults:
            batch.state = "validating" if "stuck" in faults else "in_progress"
            if age >= self.day:
                self.end(batch, "expired", 0.0 if "stuck" in faults else 1 / 3)
        elif age >= self.seconds:
            self.end(batch, "completed", 1.0)
        elif age > 0:
            batch.state = "in_progress"

    def end(self, batch: Batch, state: str, share: float) -> None:
        lines = [json.loads(line) for line in self.contents[batch.file].splitlines()]
        count = math.floor(len(lines) * share)
        good, bad = [], []
        for number, line in enumerate(lines):
            if number >= count:
                error = {"code": f"batch_{state}", "message": "This request could not be executed."}
                bad.append({"id": "r", "custom_id": line["custom_id"], "response": None, "error": error})
            elif refusal := self.refusal(line):
                bad.append({"id": "r", "custom_id": line["custom_id"], **refusal})
            else:
                body = self.answer(line["body"], "usage_zeros" in batch.faults)
                response = {"status_code": 200, "request_id": "r", "body": body}
                good.append({"id": "r", "custom_id": line["custom_id"], "response": response, "error": None})
                self.charged[line["custom_id"]] += 1
        batch.state, batch.completed, batch.failed = state, len(good), len(bad)
        self.write(batch, good, bad)

    def refusal(self, line: dict[str, Any]) -> dict[str, Any] | None:
        text = line["body"]["messages"][-1]["content"]
        if text in self.refused:
            status, words = self.refused[text]
            error = {"error": {"message": words, "type": "invalid_request_error", "code": None}}
            return {"response": {"status_code": status, "request_id": "r", "body": error}, "error": None}
        if text in self.broken:
            return {"response": None, "error": {"code": "server_error", "message": "it fell over"}}
        return None

    def write(self, batch: Batch, good: list[Any], bad: list[Any]) -> None:
        faults = batch.faults
        if "only_errors" in faults:  # nothing succeeded
            for line in good:
                self.charged[line["custom_id"]] -= 1
                error = {"code": "server_error", "message": "none of them"}
                bad.append({**line, "response": None, "error": error})
            good, batch.completed, batch.failed = [], 0, len(bad)
        if "line_doubled" in faults:
            good = good + good[:1]
        if "line_missing" in faults:
            good = good[1:]
        output = [json.dumps(line).encode() + b"\n" for line in reversed(good)]
        if "line_cut" in faults and output:
            output[0] = output[0][: len(output[0]) // 2] + b"\n"
        if "no_files" in faults:
            return
        if output:
            batch.output = self.add_file("output.jsonl", b"".join(output), "batch_output")["id"]
        if bad:
            lines = [json.dumps(line).encode() + b"\n" for line in bad]
            batch.errors_file = self.add_file("errors.jsonl", b"".join(lines), "batch_output")["id"]

    def shown(self, batch: Batch) -> dict[str, Any]:
        total = len(self.contents[batch.file].splitlines())
        upper = "upper_case" in batch.faults
        is_late = batch.state == "completed" and batch.is_absent("results_late")
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.endpoint,
            "errors": {"object": "list", "data": batch.errors} if batch.errors else None,
            "input_file_id": batch.file,
            "completion_window": "24h",
            "status": batch.state.upper() if upper else batch.state,
            "output_file_id": None if is_late else batch.output,
            "error_file_id": batch.errors_file,
            "created_at": int(batch.created_at),
            "request_counts": {"total": total, "completed": batch.completed, "failed": batch.failed},
            "metadata": batch.metadata,
        }

    def batch_of_file(self, file: str) -> Batch | None:
        for batch in self.batches.values():
            if file in (batch.output, batch.errors_file):
                return batch
        return None


class Dropped(Exception):
    """The connection ends without an answer."""


class Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def page(items: list[dict[str, Any]], query: dict[str, list[str]]) -> dict[str, Any]:
    limit, after = int(query.get("limit", ["20"])[0]), query.get("after", [""])[0]
    if not 1 <= limit <= 100:
        raise Refused(400, "limit: expected 1 to 100")
    names = [item["id"] for item in items]
    start = names.index(after) + 1 if after else 0
    chosen = items[start : start + limit]
    ends = {"first_id": chosen[0]["id"], "last_id": chosen[-1]["id"]} if chosen else {}
    return {"object": "list", "data": chosen, "has_more": start + limit < len(items), **ends}


def handle(state: BatchServer, method: str, path: str, query: dict[str, list[str]], request: Any) -> Any:
    """Return the JSON of an answer, or its bytes."""
    kind = re.sub(r"(file|batch)-\d+", "ID", f"{method} {path}")
    state.calls[kind] += 1
    if kind == "GET /clock":
        return {"now": state.now()}
    if kind == "POST /clock":
        state.advance(json.loads(request())["seconds"])
        return {"now": state.now()}
    if kind == "POST /v1/chat/completions":
        body = json.loads(request())
        text = body["messages"][-1]["content"]
        state.online[text] += 1
        if text in state.refused:
            raise Refused(*state.refused[text])
        return state.answer(body)
    if kind == ("POST /v1/files/upload" if state.is_together else "POST /v1/files"):
        content = request()
        kill(state, "upload-before")
        made = state.add_file(*content)
        kill(state, "upload-after")
        return made
    if kind == "GET /v1/files":
        return page(list(reversed(state.files.values())), query)
    if kind == "POST /v1/batches":
        return created(state, json.loads(request()))
    if kind == "GET /v1/batches":
        return listed(state, query)
    if kind == "GET /v1/files/ID/content":
        return content_of(state, path.split("/")[3])
    if kind == "GET /v1/files/ID":
        return state.files[path.split("/")[3]]
    if match := re.fullmatch(r"/v1/batches/(batch-\d+)(/cancel)?", path):
        return looked(state, state.batches[match[1]], bool(match[2]))
    raise Refused(404, "Not Found")


def kill(state: BatchServer, moment: str) -> None:
    """End whoever asks at this moment, if a test has said so, once."""
    if killer := state.kill_at.pop(moment, None):
        killer()
        raise Dropped


def created(state: BatchServer, body: dict[str, Any]) -> Any:
    kill(state, "create-before")
    if body["input_file_id"] not in state.files:
        raise Refused(400, "no such file")
    batch = state.create(body)
    kill(state, "create-after")
    if "create_dropped" in batch.faults:
        raise Dropped
    if "create_503" in batch.faults:
        raise Refused(503, "overloaded")
    shown = state.shown(batch)
    return {"job": shown, "warning": ""} if state.is_together else shown


def listed(state: BatchServer, query: dict[str, list[str]]) -> Any:
    visible = []
    for batch in reversed(state.batches.values()):
        if "list_late" not in batch.faults or state.now() >= batch.created_at + LATE_SECONDS:
            state.move(batch)
            visible.append(state.shown(batch))
    return page(visible, query)


def looked(state: BatchServer, batch: Batch, cancel: bool) -> Any:
    if "poll_429" in batch.faults and batch.polls_refused:
        batch.polls_refused -= 1
        raise Refused(429, "slowly")
    if batch.is_absent("look_404"):
        raise Refused(404, "No batch found")
    state.move(batch)
    if cancel and batch.state not in ("validating", "in_progress", "cancelling"):
        raise Refused(409, f"Cannot cancel a batch with status '{batch.state}'.")
    if cancel and batch.cancelled_at is None and batch.state in ("validating", "in_progress"):
        batch.cancelled_at = state.now()
        state.move(batch)
    kill(state, "look")
    return state.shown(batch)


def content_of(state: BatchServer, file: str) -> Any:
    batch, content = state.batch_of_file(file), state.contents[file]
    faults = batch.faults if batch else set()
    if "content_gone" in faults or (batch and batch.is_absent("content_404")):
        raise Refused(404, "No such File object")
    if killer := state.kill_at.pop("content-half", None):
        return Half(content, killer)
    if batch and batch.reads_refused and faults & {"content_502", "content_cut"}:
        batch.reads_refused -= 1
        if "content_502" in faults:
            raise Refused(502, "bad gateway")
        return Half(content, lambda: None)
    return content


@dataclass
class Half:
    content: bytes
    then: Callable[[], None]


@contextlib.contextmanager
def batch_server() -> Iterator[BatchServer]:
    state = BatchServer()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 2**16  # an answer in two packets takes 40 ms

        def do_GET(self) -> None:
            self._handle("GET")

        def do_POST(self) -> None:
            self._handle("POST")

        def _handle(self, method: str) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            try:
                if state.key and parts.path != "/clock" and self.headers.get("Authorization") != f"Bearer {state.key}":
                    raise Refused(401, "Incorrect API key provided")
                with state.lock:
                    answer = handle(state, method, parts.path, parse_qs(parts.query), lambda: self._read(body))
                self._send(200, answer)
            except Refused as refused:
                error = {"error": {"message": str(refused), "type": "invalid_request_error"}}
                self._send(refused.status, error)
            except Dropped:
                self.close_connection = True

        def _read(self, body: bytes) -> Any:
            if "multipart" not in self.headers.get("Content-Type", ""):
                return body
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            fields, name, content = {}, "", b""
            for part in message_from_bytes(head + body).get_payload():  # type: ignore[union-attr]
                if part.get_filename():  # type: ignore[union-attr]
                    name, content = part.get_filename(), part.get_payload(decode=True)  # type: ignore
                else:
                    field_name = part.get_param("name", header="content-disposition")  # type: ignore[union-attr]
                    fields[field_name] = part.get_payload()  # type: ignore[union-attr]
            if state.is_together and fields.get("file_name") != name:
                raise Refused(400, "file_name is required")
            return name, content, fields["purpose"]

        def _send(self, status: int, answer: Any) -> None:
            whole = answer.content if isinstance(answer, Half) else answer
            content = whole if isinstance(whole, bytes) else json.dumps(whole).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                if isinstance(answer, Half):
                    self.wfile.write(content[: len(content) // 2])
                    self.wfile.flush()
                    answer.then()
                    self.close_connection = True
                    return
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with served(Handler) as url:
        state.url = f"{url}/v1"
        yield state
