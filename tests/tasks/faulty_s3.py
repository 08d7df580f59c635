"""A real HTTP server in front of the session's S3 server that does, request by request, what a test asks it to."""

import contextlib
import http.client
import http.server
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.loopback import served

REFUSALS = {
    "throttle": (503, "SlowDown", "Please reduce your request rate."),
    "time_out": (400, "RequestTimeout", "Your socket connection to the server was not read from in time."),
    "fail": (500, "InternalError", "We encountered an internal error."),
    "forbid": (403, "AccessDenied", "Access Denied"),
    "expire": (400, "ExpiredToken", "The provided token has expired."),
    "exist": (412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold"),
    "fill": (507, "InsufficientStorage", "There is no space left."),
}


@dataclass
class FaultyS3:
    """`faults` befall the next requests, one each: a name in `REFUSALS`, `drop`, `lose` the answer, `cut` its body.

    `stall`: there is no answer for as long as the client waits.

    `always`: every other request, `always_for`: those of some paths.
    """

    upstream: str
    faults: list[str] = field(default_factory=list)
    always: str = ""
    always_for: dict[str, str] = field(default_factory=dict)  # by how a path ends
    ignores: str = ""  # a header of requests
    rewrite: Callable[[bytes], bytes] = bytes  # changes the bodies of answers to GET, and drops their checksums
    seen: list[str] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)  # the header Authorization of each request
    url: str = ""


@contextlib.contextmanager
def faulty_s3(upstream: str) -> Iterator[FaultyS3]:
    """In front of the S3 server at `upstream`, until the body ends."""
    state = FaultyS3(upstream)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.seen.append(f"{self.command} {urlsplit(self.path).path}")
            state.signatures.append(self.headers.get("Authorization") or "")
            path = urlsplit(self.path).path
            own = next((fault for end, fault in state.always_for.items() if path.endswith(end)), "")
            fault = own or (state.faults.pop(0) if state.faults else state.always)
            if fault in REFUSALS:
                status, code, message = REFUSALS[fault]
                text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
                self._answer(status, [("Content-Type", "application/xml")], text)
                return
            if fault in ("drop", "stall"):
                if fault == "stall":
                    self.rfile.read(1)  # until the client hangs up
                self.close_connection = True
                return
            upstream = http.client.HTTPConnection(urlsplit(state.upstream).netloc)
            headers = {name: value for name, value in self.headers.items() if name.lower() != state.ignores}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            content, given = answer.read(), answer.getheaders()
            if self.command == "GET" and state.rewrite is not bytes:
                content = state.rewrite(content)
                given = [(name, value) for name, value in given if not name.lower().startswith("x-amz-checksum")]
            upstream.close()
            if fault == "lose":
                self.close_connection = True
                return
            self._answer(answer.status, given, content, cut=fault == "cut")

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

        def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False) -> None:
            self.send_response_only(status)
            length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            for name, value in [*headers, ("content-length", length)]:
                if name != "Content-Length" and name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if cut else content)
            if cut:
                self.wfile.flush()
                time.sleep(0.05)
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with served(Handler) as url:
        state.url = url
        yield state
