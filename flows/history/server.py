"""Serve the site of jobs over HTTP: `overnight site --serve`, and beside `overnight serve`.

Reports show rows, so the server listens on 127.0.0.1 by default and needs a login: that of the Prefect server, or one
of its own if none is known. It has pages alone: no data, no receipts. It reads the receipts again when the pages are
older than ten seconds, and writes nothing.
"""

import base64
import contextlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from prefect.settings import get_current_settings

from overnight.flows.history.pages import report_path, slug
from overnight.flows.history.site import pages, read_site
from overnight.flows.runs.server_login import client_login, how_to_log_in
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.location import Location

PORT = 4280
FRESH_SECONDS = 10.0
POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
States = Callable[[], Sequence[Location]]


class Pages:
    """The pages of jobs, and the places of their reports, by the path of the request. They are read when needed."""

    def __init__(self, states: States, folder: Location | None) -> None:
        self.states, self.folder = states, folder
        self.lock = threading.Lock()
        self.read_at = -FRESH_SECONDS
        self.texts: dict[str, bytes] = {}
        self.reports: dict[str, Location] = {}

    def content(self, path: str) -> bytes | None:
        """Return the page of a request, or None if there is none."""
        with self.lock:
            if time.monotonic() - self.read_at > FRESH_SECONDS:
                self._read()
            text, report = self.texts.get(path), self.reports.get(path)
        if text is None and report:
            with contextlib.suppress(FileNotFoundError):
                return report.read_bytes()
        return text

    def _read(self) -> None:
        histories = read_site(self.states(), self.folder)
        links: dict[str, str | None] = {slug(history): slug(history) for history in histories}
        texts = {f"/{name}": page.encode(errors="replace") for name, page in pages(histories, links)}
        self.texts = texts | {"/": texts["/index.html"]}
        self.reports = {}
        for history in histories:
            for line in history.lines:
                path = report_path(history, line)
                self.reports[f"/{slug(history)}/{path}"] = history.state / path
        self.read_at = time.monotonic()


@contextlib.contextmanager
def site_served(
    states: States, host: str = "127.0.0.1", port: int | None = None, folder: Location | None = None
) -> Iterator[str]:
    """Serve the site of the jobs with these states while the body runs. Yield its address, with how to log in.

    Without a port, the server takes `PORT`, or any other if another program has it. `folder` is that of `read_site`.
    """
    home = Path(get_current_settings().home)
    login = client_login(home)
    words = how_to_log_in(home)
    if not login:
        login = f"overnight:{secrets.token_urlsafe(16)}"
        words = f"log in with {login}"
    server = _listen(host, port, _handler(Pages(states, folder), login, host))
    thread = threading.Thread(target=server.serve_forever, name="site", daemon=True)
    thread.start()
    try:
        yield f"Site: http://{host}:{server.server_port}/ ({words}). Its reports show rows."
    finally:
        server.shutdown()
        server.server_close()


def _listen(host: str, port: int | None, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        return ThreadingHTTPServer((host, PORT if port is None else port), handler)
    except OSError as error:
        if port is None:
            return ThreadingHTTPServer((host, 0), handler)
        raise OvernightError(
            f"{host}:{port}: expected an address of this machine and a free port, found: {error}. Name others."
        ) from None


def _handler(content: Pages, login: str, own_host: str) -> type[BaseHTTPRequestHandler]:
    header = f"Basic {base64.b64encode(login.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        """Answers a request for a page."""

        timeout = 30.0  # seconds without a byte: a client that sends nothing keeps no thread

        def do_GET(self) -> None:
            if not _is_this_server(self.headers.get("Host", ""), own_host):
                self._answer(403, b"expected the address that the terminal shows")
            elif not hmac.compare_digest(self.headers.get("Authorization", "").encode(), header.encode()):
                self._answer(401, b"expected the login that the terminal names")
            else:
                self._answer_page(unquote(self.path.partition("?")[0]))

        def _answer_page(self, path: str) -> None:
            try:
                page = content.content(path)
            except Exception as error:  # a store that is away, or a receipt that Overnight did not write
                self._answer(503, masked(str(error)).encode(errors="replace"))
                return
            if page is None:
                self._answer(404, b"no such page")
            else:
                self._answer(200, page, "text/html; charset=utf-8")

        def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="Overnight"')
            for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the browser is gone
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler


def _is_this_server(host: str, own_host: str) -> bool:
    """Return True for an address, `localhost` or the named host: the page of another site has a name of its own."""
    with contextlib.suppress(ValueError):
        name = urlsplit(f"//{host}").hostname or ""
        return name in ("localhost", own_host.lower()) or bool(ipaddress.ip_address(name))
    return False
