"""The local Prefect server of the command line and of Python: reused if it answers, otherwise started.

It keeps running after the command, because of its UI, until `prefect server stop` ends it. Its address is in
`PREFECT_HOME/overnight-server.json`.
"""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import OvernightError

START_SECONDS = 120.0
BUSY_SECONDS = 60.0


@contextlib.contextmanager
def prefect_server(show: bool = True) -> Iterator[str]:
    """Yield the URL of the Prefect API, which is in the settings and the environment while the body runs.

    This is the configured server, otherwise the local one, which is started if it does not run. If `show`, print a line
    before the start. Raise `OvernightError` if no server can be started.
    """
    home, url = Path(get_current_settings().home), get_current_settings().api.url
    ours: dict[Any, str] = {}
    if not url:
        home.mkdir(parents=True, exist_ok=True)
        with open(home / "overnight-server.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            url = ours[PREFECT_API_URL] = _running(home) or _start(home, show)
    with settings_shared(ours):
        yield url


@contextlib.contextmanager
def settings_shared(ours: dict[Any, str]) -> Iterator[None]:
    """Set these Prefect settings while the body runs, in this process and in the environment of child processes."""
    names = [setting.name for setting in ours]
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(zip(names, ours.values(), strict=True))
    try:
        with temporary_settings(ours):
            yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


def ui_address(api_url: str) -> str:
    """Return the address of the UI: the variable PREFECT_UI_URL, or without it the address of the API's host.

    The variable is for an API that has another name in its own network.
    """
    address = os.environ.get("PREFECT_UI_URL", api_url.removesuffix("/").removesuffix("/api")).removesuffix("/")
    return masked(address)


def known_server() -> str | None:
    """Return the URL of the API of the configured Prefect server, otherwise of the local one if it runs, or None."""
    return get_current_settings().api.url or running_server()


def running_server() -> str | None:
    """Return the URL of the API of the local Prefect server, or None if that server does not run."""
    return _running(Path(get_current_settings().home))


def _running(home: Path) -> str | None:
    try:
        url = str(json.loads((home / "overnight-server.json").read_text())["url"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
    deadline = time.monotonic() + BUSY_SECONDS
    while not _answers(url):
        if not _is_alive(home / "server.pid") or time.monotonic() > deadline:
            return None
    return url


def _is_alive(pid_file: Path) -> bool:
    """Return True if the process of a pid file runs. A busy server may need a while to answer."""
    try:
        os.kill(int(pid_file.read_text()), 0)
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return False
    return True


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _start(home: Path, show: bool) -> str:
    if show:
        click.echo("Starting a Prefect server, about 10 s", err=True)
    (home / "server.pid").unlink(missing_ok=True)  # a server that no longer answers left it
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    environment = {
        **os.environ,
        "PREFECT_SERVER_UI_API_URL": url,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
        # Prefect's client keeps a connection for 25 s. If the server closed it earlier, a request would lose 2 s.
        "PREFECT_SERVER_API_KEEPALIVE_TIMEOUT": "30",
        # Prefect keeps leases in memory by default. A restart would lose them, and the slots that they hold.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    log = home / "overnight-server.log"
    with open(log, "ab") as output:
        # Without --background: the output of that server is a pipe without a reader, and its first warning ends it.
        server = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C in this terminal must not reach the server
        )
    (home / "server.pid").write_text(str(server.pid))  # `prefect server stop` reads it
    # Before it answers: on a slow machine, the next command finds the server that this one no longer waits for.
    (home / "overnight-server.json").write_text(json.dumps({"url": url}))
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        if _answers(url):
            return url
        time.sleep(0.2)
    remedy = "Run the command again: the server is still starting" if server.poll() is None else "Its process ended"
    raise OvernightError(
        f"expected a Prefect server on port {port} within {START_SECONDS:.0f} s, found none. {remedy}. Its log: {log}."
    )
