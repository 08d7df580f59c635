"""The local Prefect server of the command line and of Python: reused if it answers, otherwise started.

It keeps running after the command, because of its UI, until `prefect server stop` ends it. Its address is in
`PREFECT_HOME/overnight-server.json`. It needs a login (`server_login.py`), serves pages of its own UI alone, and takes
no request that another page made a browser send (CSRF).
"""

import base64
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
from urllib.parse import urlsplit

import httpx
import psutil
from prefect.client.base import ServerType
from prefect.client.orchestration import get_client
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    get_current_settings,
    temporary_settings,
)

from overnight.flows.runs.server_login import (
    client_login,
    how_to_log_in,
    login_file,
    make_login,
    prefect_variables,
    read_login,
    write_for_owner,
)
from overnight.tasks.config.masking import masked
from overnight.tasks.config.proxies import this_machine_past_proxies
from overnight.tasks.errors import OvernightError

START_SECONDS = 120.0
BUSY_SECONDS = 60.0
ANSWER_SECONDS = 60.0  # of a server that is configured
PRIVATE = ("prefect.db*", "storage", "overnight-server.*")
BUSY = (429, 502, 503)  # statuses of a server that is busy, or that restarts behind a gateway


@contextlib.contextmanager
def prefect_server(show: bool = True) -> Iterator[str]:
    """Yield the URL of the Prefect API, which is in the settings and the environment while the body runs.

    This is the configured server, otherwise the local one, which is started if it does not run.
    """
    home, url = _home(), get_current_settings().api.url
    with this_machine_past_proxies():
        if url and (problem := server_problem(url)):
            raise OvernightError(f"PREFECT_API_URL: {problem}")
        if not url:
            _make_home(home)
            with open(home / "overnight-server.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                url = _running(home, show) or _start(home, show)
        if is_local(url):
            _check_login(home, url)
        with settings_shared(client_settings(url) if is_local(url) else {}):
            yield url


def server_problem(url: str) -> str:
    """Return why no Prefect server answers at the URL of an API, and what to do; an empty text if one does."""
    if urlsplit(url).scheme not in ("http", "https"):
        return f"expected an address such as http://127.0.0.1:4200/api, found {masked(url)}."
    problem = _health_problem(url)
    if not problem:
        return ""
    base = url.rstrip("/")
    advice = "Start it, or correct the variable; without it, Overnight starts a server of its own"
    if not base.endswith("/api") and not _health_problem(f"{base}/api"):
        advice = f"The address has to end in /api: set it to {masked(base)}/api"
    elif url.startswith("http:") and urllib.request.getproxies().get("http"):
        advice += ". The environment has a proxy (http_proxy): if it cannot reach the server, name the host in NO_PROXY"
    return f"expected a Prefect server at {masked(url)}, found none: {problem}. {advice}."


def _health_problem(url: str) -> str:
    """Return what the API at `url` answers instead of its health; an empty text for a healthy one."""
    deadline = time.monotonic() + ANSWER_SECONDS
    settings = {PREFECT_API_URL: url, PREFECT_CLIENT_MAX_RETRIES: 0}
    while True:
        try:
            with (
                temporary_settings(settings),
                get_client(sync_client=True, httpx_settings={"timeout": ANSWER_SECONDS}) as client,
            ):
                answer = client.request("GET", "/health")  # with the settings of Prefect: its headers, certificates
                if client.server_type == ServerType.CLOUD or answer.text.strip() == "true":
                    return ""
                return f"the answer is not that of a Prefect API: {answer.text[:40]!r}"
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in BUSY or time.monotonic() > deadline:
                return f"status {error.response.status_code}"
            time.sleep(1)
        except Exception as error:
            return masked(f"{type(error).__name__}: {error}")


def client_settings(url: str) -> dict[Any, str]:
    """Return the Prefect settings of a client of the API at `url`: its address, and the login of the local server."""
    settings = {PREFECT_API_URL: url}
    if is_local(url) and (login := client_login(_home())):
        settings[PREFECT_API_AUTH_STRING] = login
    return settings


def is_local(url: str) -> bool:
    """Return True if `url` is the API of the local server, which may have ended."""
    return url.rstrip("/") == _recorded(_home())


def command_variables(url: str) -> str:
    """Return the variables that a `prefect` command for the local server needs, each with a blank behind it."""
    return f"PREFECT_API_URL={url} {prefect_variables(_home())}" if is_local(url) else ""


def login_profile(url: str) -> dict[str, str]:
    """Return the variable with which another process of this node logs in to the local server by its file."""
    home = _home()
    with contextlib.suppress(OvernightError):
        if is_local(url) and (login := read_login(home)) and client_login(home) == login:
            return {"PREFECT_PROFILES_PATH": str(login_file(home))}
    return {}


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
    """Return the address of the UI: the variable PREFECT_UI_URL, or without it the address of the API's host."""
    address = os.environ.get("PREFECT_UI_URL", api_url.removesuffix("/").removesuffix("/api")).removesuffix("/")
    return masked(address)


def ui_line(api_url: str, page: str = "") -> str:
    """Return the line with the address of a page of the UI. For the local server, it has the file with the login."""
    login = how_to_log_in(_home()) if is_local(api_url) else ""
    return f"Prefect UI: {ui_address(api_url)}{page}" + (f" ({login})" if login else "")


def known_server() -> str | None:
    """Return the URL of the API of the configured Prefect server, otherwise of the local one if it runs, or None."""
    return get_current_settings().api.url or running_server()


def running_server() -> str | None:
    """Return the URL of the API of the local Prefect server, or None if that server does not run."""
    return _running(_home(), show=False)


def _say(line: str) -> None:
    """Write a line to stderr as it is now: a screen may have replaced it, and `click.echo` would write over that."""
    print(line, file=sys.stderr)


def _home() -> Path:
    return Path(get_current_settings().home)


def _make_home(home: Path) -> None:
    """Make the folder for its owner alone. Raise `OvernightError` for one in which another user could put files."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = home.stat()
    if status.st_mode & 0o002 or os.getuid() not in (0, status.st_uid):
        raise OvernightError(
            f"{home}: expected a PREFECT_HOME that only you can write, found mode {status.st_mode & 0o7777:o} of user "
            f"{status.st_uid}. Its files decide where your login goes: set PREFECT_HOME to a folder of your own."
        )


def _recorded(home: Path) -> str | None:
    """Return the URL of the API of the local server that started last, or None."""
    try:
        return str(json.loads((home / "overnight-server.json").read_text())["url"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _running(home: Path, show: bool) -> str | None:
    """Return the URL of the local server if it runs. Wait for it if it is busy."""
    url = _recorded(home)
    if not url:
        return None
    deadline = time.monotonic() + BUSY_SECONDS
    while not _answers(home, url):
        if not _is_alive(home, url) or time.monotonic() > deadline:
            return None
        if show:
            _say(f"Waiting for the Prefect server at {url}, which is busy")
            show = False
        time.sleep(0.2)
    return url


def _process(home: Path) -> psutil.Process:
    return psutil.Process(int((home / "server.pid").read_text()))


def _is_alive(home: Path, url: str) -> bool:
    """Return True if the process of the pid file runs and is the server of this URL, and not a later process."""
    try:
        return str(urlsplit(url).port) in _process(home).cmdline()
    except (FileNotFoundError, ValueError, psutil.Error):
        return False


def _answers(home: Path, url: str) -> bool:
    """Return True if the server answers, and the port is its own: no other user's process may get the login."""
    return _status(f"{url}/health") == 200 and _listens(home, url)


def _listens(home: Path, url: str) -> bool:
    """Return True if the process of the pid file, which must be the user's, or its child listens at the URL's port."""
    try:
        server = _process(home)
        for process in (server, *server.children(True)):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == urlsplit(url).port:
                    return True
    except (FileNotFoundError, ValueError, psutil.Error):
        pass
    return False


def _status(url: str, login: str = "") -> int:
    """Return the status of the answer to a GET past all proxies, or 0 without an answer."""
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    try:
        # `url` begins with http: without verify=False, httpx takes 24 ms to load the certificates
        return httpx.get(url, headers=headers, trust_env=False, verify=False, timeout=5).status_code
    except httpx.HTTPError:
        return 0


def _check_login(home: Path, url: str) -> None:
    """Raise `OvernightError` if the local server refuses the login. Print a warning if it needs none.

    A server of an earlier version needs none. It stays, because runs may use it.
    """
    version = f"{url}/admin/version"
    if _status(version) == 200:
        _say(
            f"Warning: the Prefect server at {url} has no login, so other users of this machine can run code in your "
            "name. When no run uses it, call `prefect server stop`: the next command starts one with a login."
        )
    elif _status(version, client_login(home) or "") == 401:
        settings = get_current_settings()
        source = str(login_file(home))
        if settings.api.auth_string or settings.server.api.auth_string:
            source = "PREFECT_API_AUTH_STRING or PREFECT_SERVER_API_AUTH_STRING (environment or profile)"
        raise OvernightError(
            f"expected the login of the Prefect server at {url}, found another one in {source}. Set the "
            "one with which it started, or call `prefect server stop` when no run uses it."
        )


def _start(home: Path, show: bool) -> str:
    """Start the server, wait until it answers, and return the URL of its API."""
    login = make_login(home)
    if show:
        _say("Starting a Prefect server, about 10 s")
    (home / "server.pid").unlink(missing_ok=True)  # a server that no longer answers left it
    for pattern in PRIVATE:
        for file in home.glob(pattern):
            file.chmod(file.stat().st_mode & ~0o077)  # another server of this folder left them readable
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    log = home / "overnight-server.log"
    server = _start_process(port, login, log)
    write_for_owner(home / "server.pid", str(server.pid))  # `prefect server stop` reads it
    # Before it answers: on a slow machine, the next command finds the server that this one no longer waits for.
    write_for_owner(home / "overnight-server.json", json.dumps({"url": url}))
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        if _answers(home, url):
            return url
        time.sleep(0.2)
    remedy = "Run the command again: the server is still starting" if server.poll() is None else "Its process ended"
    raise OvernightError(
        f"expected a Prefect server on port {port} within {START_SECONDS:.0f} s, found none. {remedy}. Its log: {log}."
    )


def _start_process(port: int, login: str, log: Path) -> subprocess.Popen[bytes]:
    environment = {
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{port}",
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        **os.environ,
        "PREFECT_SERVER_API_AUTH_STRING": login,  # not an argument, which other users see
        "PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
        # Prefect's client keeps a connection for 25 s. If the server closed it earlier, a request would lose 2 s.
        "PREFECT_SERVER_API_KEEPALIVE_TIMEOUT": "30",
        # Prefect keeps leases in memory by default. A restart would lose them, and the slots that they hold.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    log.touch(0o600)
    with open(log, "ab") as output:
        # Without --background: the output of that server is a pipe without a reader, and its first warning ends it.
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C in this terminal must not reach the server
            umask=0o077,  # its database has the parameters and logs of runs
        )
