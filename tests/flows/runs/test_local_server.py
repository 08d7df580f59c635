import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_HOME,
    get_current_settings,
    temporary_settings,
)

from overnight.flows.runs import local_server
from overnight.flows.runs.local_server import (
    client_settings,
    login_profile,
    prefect_server,
    running_server,
    ui_address,
    ui_line,
)
from overnight.flows.runs.server_login import client_login, login_file
from overnight.tasks.errors import OvernightError
from tests.object_stores import free_port

FOREIGN = {"Origin": "http://attacker.example"}


def login_here() -> tuple[str, str]:
    user, _, password = str(client_login(Path(get_current_settings().home))).partition(":")
    return user, password


@contextmanager
def home_without_a_server(folder: Path) -> Iterator[None]:
    with temporary_settings({PREFECT_HOME: folder}, restore_defaults={PREFECT_API_URL, PREFECT_API_AUTH_STRING}):
        yield


def test_a_person_is_sent_to_the_api_s_host_or_to_the_address_that_is_configured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_UI_URL", raising=False)
    assert ui_address("http://127.0.0.1:4200/api") == "http://127.0.0.1:4200"
    monkeypatch.setenv("PREFECT_UI_URL", "http://127.0.0.1:8080/")
    assert ui_address("http://prefect-server:4200/api") == "http://127.0.0.1:8080"


@pytest.mark.slow
def test_a_server_that_starts_slowly_is_found_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "START_SECONDS", 0.0)
    with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults={PREFECT_API_URL}):
        with (
            pytest.raises(OvernightError, match="Run the command again: the server is still starting"),
            prefect_server(),
        ):
            pass
        first = int((tmp_path / "server.pid").read_text())
        try:
            monkeypatch.setattr(local_server, "_start", lambda *_: pytest.fail("a second server was started"))
            monkeypatch.setattr(local_server, "BUSY_SECONDS", 300.0)
            with prefect_server() as url:
                assert url.startswith("http://127.0.0.1:")
        finally:
            os.kill(first, signal.SIGTERM)
            os.waitpid(first, 0)


def test_nothing_but_health_is_answered_without_the_login(prefect_api: str) -> None:
    assert httpx.get(f"{prefect_api}/health").status_code == 200
    for method, path in (("GET", "/admin/version"), ("GET", "/csrf-token?client=1"), ("POST", "/deployments/filter")):
        assert httpx.request(method, prefect_api + path).status_code in (401, 403)
        assert httpx.request(method, prefect_api + path, auth=("overnight", "guess")).status_code in (401, 403)
    assert httpx.get(f"{prefect_api}/admin/version", auth=login_here()).status_code == 200


def test_a_page_of_another_origin_reads_nothing_and_sends_nothing(prefect_api: str) -> None:
    with httpx.Client(auth=login_here()) as browser:
        read = browser.get(f"{prefect_api}/admin/version", headers=FOREIGN)
        asked = {"Access-Control-Request-Method": "POST"}
        preflight = browser.options(f"{prefect_api}/flows/filter", headers={**FOREIGN, **asked})
        own = browser.options(f"{prefect_api}/flows/filter", headers={"Origin": ui_address(prefect_api), **asked})
        sent = browser.post(f"{prefect_api}/flows/filter", json={})
    assert "access-control-allow-origin" not in read.headers
    assert (preflight.status_code, "access-control-allow-origin" in preflight.headers) == (400, False)
    assert (own.status_code, own.headers["access-control-allow-origin"]) == (200, ui_address(prefect_api))
    assert (sent.status_code, "CSRF" in sent.text) == (403, True)


def test_prefect_s_client_logs_in_and_changes_things(prefect_api: str) -> None:
    with temporary_settings(client_settings(prefect_api)), get_client(sync_client=True) as client:
        name = client.create_flow_from_name("logged-in")
        assert name in [flow.id for flow in client.read_flows()]


def test_the_login_is_in_no_argument_and_in_no_line_for_the_terminal(prefect_api: str) -> None:
    _, secret = login_here()
    home = Path(get_current_settings().home)
    server = psutil.Process(int((home / "server.pid").read_text()))
    for process in (server, *server.children(recursive=True)):
        assert secret not in " ".join(process.cmdline())
    assert secret not in ui_line(prefect_api)
    assert str(login_file(home)) in ui_line(prefect_api)
    assert secret not in str(login_profile(prefect_api))
    assert all(file.stat().st_mode & 0o077 == 0 for file in home.rglob("*"))


def test_another_server_gets_no_login(prefect_api: str) -> None:
    assert PREFECT_API_AUTH_STRING not in client_settings("http://127.0.0.1:9/api")
    assert login_profile("http://127.0.0.1:9/api") == {}
    assert "log in" not in ui_line("http://127.0.0.1:9/api")


def test_a_process_at_the_port_of_a_server_that_ended_is_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api/health").write_text("true")
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as squatter, subprocess.Popen(["sleep", "600"]) as other:
        try:
            url = f"http://127.0.0.1:{port}/api"
            httpx.Client(transport=httpx.HTTPTransport(retries=8)).get(f"{url}/health").raise_for_status()
            (tmp_path / "overnight-server.json").write_text(json.dumps({"url": url}))
            (tmp_path / "server.pid").write_text(str(other.pid))
            with home_without_a_server(tmp_path):
                assert running_server() is None
        finally:
            squatter.terminate()
            other.terminate()


def test_a_home_in_which_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with (
        home_without_a_server(tmp_path),
        pytest.raises(OvernightError, match="expected a PREFECT_HOME that only you can write, found mode 777"),
        prefect_server(),
    ):
        pass


@pytest.mark.slow
def test_a_server_of_an_earlier_version_without_a_login_stays_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        command,
        env={**environment, "PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            (tmp_path / "server.pid").write_text(str(server.pid))
            url = f"http://127.0.0.1:{port}/api"
            (tmp_path / "overnight-server.json").write_text(json.dumps({"url": url}))
            with home_without_a_server(tmp_path), prefect_server() as found, get_client(sync_client=True) as client:
                assert found == url
                client.read_flows(limit=1)
        finally:
            server.terminate()
    assert "has no login" in capsys.readouterr().err


@pytest.mark.slow
def test_two_commands_at_once_start_one_server_with_one_login(tmp_path: Path) -> None:
    program = (
        "from overnight.flows.runs.local_server import client_settings, prefect_server\n"
        "with prefect_server(False) as url: print(*client_settings(url).values())"
    )
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = {**inherited, "PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [sys.executable, "-c", program]
    commands = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        first, second = [each.communicate(timeout=240)[0] for each in commands]
        assert len(first.split()) == 2
        assert first == second
        with (
            home_without_a_server(tmp_path),
            temporary_settings({PREFECT_API_AUTH_STRING: "me:wrong"}),
            pytest.raises(OvernightError, match="expected the login of the Prefect server"),
            prefect_server(),
        ):
            pass
    finally:
        os.kill(int((tmp_path / "server.pid").read_text()), signal.SIGTERM)
