"""A real HTTP server with the batches of a provider, on a clock that tests move, which fails batch by batch.

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
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.loopback import served
from tests.tasks.infer.batch_forms import FORMS, Call, GeminiForm, OpenAIForm, Refused, WithHeaders

LATE_SECONDS = 120.0


@dataclass
class Batch:
    id: str
    file: str
    faults: set[str]
    created_at: float
    label: dict[str, str]
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

    dialect: str = "openai"
    faults: dict[int, set[str]] = field(default_factory=dict)
    seconds: float = 3600.0  # of a batch
    cancel_seconds: float = 5.0
    day: float = 86400.0  # after which a batch expires
    key: str = ""
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)  # texts whose rows have no response
    ignored: tuple[str, ...] = ()  # parameters of requests that do nothing
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

    @property
    def form(self) -> OpenAIForm:
        form = FORMS[self.dialect]()
        form.url = self.url
        return form

    def now(self) -> float:
        return time.time() + self.offset

    def advance(self, seconds: float) -> None:
        self.offset += seconds

    def add_file(self, name: str, content: bytes, purpose: str) -> dict[str, Any]:
        id = f"file-{len(self.files):05}"
        self.contents[id] = content
        self.files[id] = {
            "id": id,
            "filename": name,
            "purpose": purpose,
            "bytes": len(content),
            "created_at": int(self.now()),
        }
        return self.files[id]

    def create(self, facts: dict[str, Any]) -> Batch:
        number = len(self.batches)
        id = f"batch-{number:05}"
        if "content" in facts:  # requests without a file
            facts["file"] = id
            self.contents[id] = facts["content"]
        if facts["file"] not in self.contents:
            raise Refused(400, "no such file")
        faults = self.faults.get(number, set())
        batch = Batch(id, facts["file"], faults, self.now(), facts["label"], facts["endpoint"])
        self.batches[id] = batch
        return batch

    def move(self, batch: Batch) -> None:
        """Bring a batch to its state of this moment."""
        if batch.state in ("completed", "failed", "expired", "cancelled"):
            return
        age, faults = self.now() - batch.created_at, batch.faults
        if faults & {"token_limit", "failed"} and self.dialect != "anthropic":  # which refuses row by row
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
        requests = self.form.requests(self.contents[batch.file])
        count = math.floor(len(requests) * share)
        good, bad, others = {}, {}, {}
        for number, (key, text) in enumerate(requests):
            if number >= count:
                others[key] = self.form.not_tried(key, state)
            elif text in self.refused:
                bad[key] = self.form.refused(key, *self.refused[text])
            elif text in self.broken or "only_errors" in batch.faults:
                bad[key] = self.form.broken(key)
            else:
                good[key] = self.form.answered(key, self.form.answer(text, "usage_zeros" in batch.faults))
                self.charged[key] += 1
        batch.state, batch.completed, batch.failed = state, len(good), len(bad)
        bad |= {key: line for key, line in others.items() if line}
        self.write(batch, list(good.values()), list(bad.values()))

    def write(self, batch: Batch, good: list[Any], bad: list[Any]) -> None:
        faults = batch.faults
        if "line_doubled" in faults:
            good = good + good[:1]
        if "line_missing" in faults:
            good = good[1:]
        output = [json.dumps(line).encode() + b"\n" for line in reversed(good)]
        if "line_cut" in faults and output:
            output[0] = output[0][: len(output[0]) // 2] + b"\n"
        errors = [json.dumps(line).encode() + b"\n" for line in bad]
        if self.form.has_one_file:
            output, errors = output + errors, []
        if "no_files" in faults:
            return
        if output:
            batch.output = self.add_file("output.jsonl", b"".join(output), "batch_output")["id"]
        if errors:
            batch.errors_file = self.add_file("errors.jsonl", b"".join(errors), "batch_output")["id"]

    def shown(self, batch: Batch) -> dict[str, Any]:
        is_late = batch.state == "completed" and batch.is_absent("results_late")
        rows = len(self.form.requests(self.contents[batch.file]))
        return self.form.shown(batch, rows, None if is_late else batch.output)

    def batch_of_file(self, file: str) -> Batch | None:
        for batch in self.batches.values():
            if file in (batch.output, batch.errors_file):
                return batch
        return None


class Dropped(Exception):
    """The connection ends without an answer."""


def handle(state: BatchServer, call: Call) -> Any:
    """Return the JSON of an answer, or its bytes."""
    request = f"{call.method} {call.path}"
    state.calls[re.sub(r"(file|batch)-\d+", "ID", request)] += 1
    if call.path == "/clock":
        if call.method == "POST":
            state.advance(call.body["seconds"])
        return {"now": state.now()}
    state.form.check(call)
    for pattern, act in state.form.ROUTES:
        if match := re.fullmatch(pattern, request):
            return acted(state, act, match.groupdict().get("id"), call)
    raise Refused(404, "Not Found")


def acted(state: BatchServer, act: str, id: str | None, call: Call) -> Any:
    form = state.form
    if act == "online":
        text = form.text(call.body)
        state.online[text] += 1
        if text in state.refused:
            raise Refused(*state.refused[text])
        return form.answer(text)
    if act == "begin":
        assert isinstance(form, GeminiForm)
        return form.begun(call, state.url)
    if act == "upload":
        content = call.read()
        kill(state, "upload-before")
        is_named = isinstance(content, bytes)  # by its URL
        made = form.file(state.add_file(*((id, content, "batch") if is_named else content)))
        kill(state, "upload-after")
        return WithHeaders({"file": made}, {"X-Goog-Upload-Status": "final"}) if is_named else made
    if act == "files":
        return form.page([form.file(file) for file in reversed(state.files.values())], call, "files")
    if act == "create":
        return created(state, call)
    if act == "list":
        return listed(state, call)
    assert id
    if act == "file":
        return form.file(state.files[id])
    if act == "content":
        return content_of(state, (state.batches[id].output or "") if id in state.batches else id)
    return looked(state, state.batches[id], act == "cancel")


def kill(state: BatchServer, moment: str) -> None:
    """End whoever asks at this moment, if a test has said so, once."""
    if killer := state.kill_at.pop(moment, None):
        killer()
        raise Dropped


def created(state: BatchServer, call: Call) -> Any:
    kill(state, "create-before")
    batch = state.create(state.form.created(call))
    kill(state, "create-after")
    if "create_dropped" in batch.faults:
        raise Dropped
    if "create_503" in batch.faults:
        raise Refused(503, "overloaded")
    return state.form.at_creation(state.shown(batch))


def listed(state: BatchServer, call: Call) -> Any:
    visible = []
    for batch in reversed(state.batches.values()):
        if "list_late" not in batch.faults or state.now() >= batch.created_at + LATE_SECONDS:
            state.move(batch)
            visible.append(state.shown(batch))
    return state.form.page(visible, call, "batches")


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
    batch, content = state.batch_of_file(file), state.contents.get(file)
    if content is None:
        raise Refused(404, "no results")
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
def batch_server(dialect: str = "openai") -> Iterator[BatchServer]:
    state = BatchServer(dialect)

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
                key = self.headers.get(state.form.key_header, "").removeprefix("Bearer ")
                if state.key and parts.path != "/clock" and key != state.key:
                    raise Refused(401, "Incorrect API key provided")
                read = partial(self._read, body)
                with state.lock:
                    query = parse_qs(parts.query)
                    for name in state.ignored:
                        query.pop(name, None)
                    answer = handle(state, Call(method, parts.path, query, self.headers, read))
                self._send(200, answer)
            except Refused as refused:
                self._send(refused.status, state.form.error(str(refused)))
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
            if state.dialect == "together" and fields.get("file_name") != name:
                raise Refused(400, "file_name is required")
            return name, content, fields["purpose"]

        def _send(self, status: int, answer: Any) -> None:
            headers = {}
            if isinstance(answer, WithHeaders):
                answer, headers = answer.answer, answer.headers
            whole = answer.content if isinstance(answer, Half) else answer
            content = whole if isinstance(whole, bytes) else json.dumps(whole).encode()
            self.send_response(status)
            kind = "octet-stream" if whole is content else "json"
            self.send_header("Content-Type", f"application/{kind}")
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
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
