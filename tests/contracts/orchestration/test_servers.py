"""Promises about Prefect servers: the one that is configured, the local one, and a proxy between."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from overnight.flows.runs.local_server import known_server, prefect_server, running_server
from overnight.tasks.config.proxies import this_machine_past_proxies
from overnight.tasks.errors import OvernightError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@contextmanager
def http_server(answers: dict[str, tuple[int, str]], default: tuple[int, str] = (404, "{}")) -> Iterator[int]:
    """Serve these answers by path, and yield the port. The paths that were asked for are in `answers[""]`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.get(self.path, default)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refusal(url: str) -> str:
    with (
        temporary_settings({PREFECT_API_URL: url}),
        pytest.raises(OvernightError) as refused,
        prefect_server(show=False),
    ):
        pass
    assert "PREFECT_API_URL" in refused.value.message
    return refused.value.message


def test_an_address_at_which_nothing_listens_is_named() -> None:
    message = refusal("http://user:secret@127.0.0.1:9/api")
    assert "127.0.0.1:9/api" in message
    assert "secret" not in message


@pytest.mark.parametrize("url", ["127.0.0.1:4200/api", "htp://127.0.0.1:4200/api", "http://no.such.host.invalid/api"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    assert url in refusal(url)


def test_the_address_of_the_ui_is_told_to_end_in_api() -> None:
    with http_server({"/api/health": (200, "true")}, (404, '{"detail": "Not Found"}')) as port:
        assert "/api" in refusal(f"http://127.0.0.1:{port}").partition(f":{port}")[2]
        with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{port}/api/"}), prefect_server(show=False) as url:
            assert url.rstrip("/").endswith("/api")


@pytest.mark.parametrize("answer", [(200, "<html>"), (404, ""), (500, "down"), (401, "{}"), (302, "")])
def test_a_server_that_is_not_prefect_s_is_named(answer: tuple[int, str]) -> None:
    with http_server({}, answer) as port:
        assert f":{port}/api" in refusal(f"http://127.0.0.1:{port}/api")


def test_a_server_that_accepts_and_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overnight.flows.runs.local_server.ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        refusal(f"http://127.0.0.1:{silent.getsockname()[1]}/api")
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("name", ["server.pid of another process", "no server.pid", "server.pid without a number"])
def test_a_server_that_ended_is_not_waited_for(name: str, tmp_path: Path) -> None:
    (tmp_path / "overnight-server.json").write_text(json.dumps({"url": "http://127.0.0.1:9/api"}))
    if name != "no server.pid":
        (tmp_path / "server.pid").write_text(str(os.getppid()) if "process" in name else "?")
    began = time.monotonic()
    with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults={PREFECT_API_URL}):
        assert running_server() is None
        assert known_server() is None
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("before", [{}, {"NO_PROXY": "internal"}, {"no_proxy": "internal"}, {"no_proxy": "*"}])
@pytest.mark.parametrize("host", LOOPBACK)
def test_this_machine_is_asked_past_the_proxy_and_other_hosts_through_it(
    host: str, before: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    with http_server({}, (200, "true")) as port, http_server({}, (502, "by the proxy")) as proxy:
        for name in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        environment = dict(os.environ)
        with this_machine_past_proxies():
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"http://{host}:1/x")
            if host != "[::1]":  # the server of the test listens on IPv4
                assert httpx.get(f"http://{host}:{port}/x").status_code == 200
            if before.get("no_proxy") != "*":
                assert httpx.get("http://example.invalid/x").status_code == 502
        assert dict(os.environ) == environment


def test_a_server_that_runs_is_found_behind_a_proxy(prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    without = temporary_settings(restore_defaults={PREFECT_API_URL})
    with without, prefect_server(show=False) as url, get_client(sync_client=True) as client:
        assert url == prefect_api
        client.read_flows(limit=1)
