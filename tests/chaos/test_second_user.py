"""A second user of this machine, and a page of another origin, against every server and file of Overnight's programs.

The programs run as here, with the usual umask, in folders that everyone may enter. What Compose and Slurm start is
checked in tests/deployments: ports, logins, tokens and folders.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.chaos.runs import Process, end, marked, overnight, wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
]
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
ROW = "a text of a row"
MODEL = """
import pathlib, time

class Waits:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def __call__(self, batch):
        (self.folder / "reached").touch()
        while not (self.folder / "release").exists():
            time.sleep(0.1)
        return {"size": [len(text) for text in batch["text"]]}
"""
FILES = {"Prefect's home": "prefect", "Ray's folder": "ray", "temporary files": "tmp", "the state": "out/_overnight"}
REQUESTS = [
    ("GET", "/api/admin/version"),
    ("POST", "/api/deployments/filter"),
    ("POST", "/api/flow_runs/filter"),
    ("GET", "/api/csrf-token?client=a"),
    ("GET", "/api/v0/nodes"),
    ("GET", "/api/jobs/"),
    ("POST", "/api/jobs/"),
    ("GET", "/api/v0/logs"),
    ("GET", "/nodes?view=summary"),
]
ORIGIN = {"Origin": "http://attacker.example"}


@dataclass(frozen=True)
class Programs:
    """The processes of `PROGRAMS` while a row is in the model, and the folder with all that they wrote."""

    folder: Path
    started: dict[str, Process]

    @property
    def login(self) -> str:
        text = (self.folder / "prefect/overnight-login.toml").read_text()
        return str(tomllib.loads(text)["profiles"]["overnight"]["PREFECT_API_AUTH_STRING"])

    @property
    def api(self) -> str:
        return str(json.loads((self.folder / "prefect/overnight-server.json").read_text())["url"])

    def asked(self, path: str) -> httpx.Response:
        """The answer of the Prefect server to its owner."""
        user, _, password = self.login.partition(":")
        return httpx.get(self.api + path, auth=(user, password), timeout=30)

    @property
    def processes(self) -> dict[psutil.Process, str]:
        """Every process that they started, with the name of its program."""
        return {psutil.Process(pid): name for name, each in self.started.items() for pid in marked(each.mark)}

    def sockets(self, kind: str) -> Iterator[tuple[str, Any]]:
        for process, name in self.processes.items():
            for each in process.net_connections(kind):
                if kind == "unix" or each.status == psutil.CONN_LISTEN:
                    yield f"{name}: {' '.join(process.cmdline())[:80]}", each


def is_served(programs: Programs) -> bool:
    """Whether the job has its deployment."""
    answer = programs.asked("/deployments/name/batch-inference/two")
    return answer.is_success


def listens(programs: Programs) -> bool:
    return any(name.startswith("metrics") for name, _ in programs.sockets("tcp"))


PROGRAMS: dict[str, tuple[tuple[str, ...], Callable[[Programs], bool]]] = {
    "run": (("run", "job.yaml", "--ray-dashboard"), lambda programs: (programs.folder / "reached").exists()),
    "serve": (("serve", "job.yaml"), is_served),
    "metrics": (("metrics", "job.yaml", "--port", "0"), listens),
}


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    folder = Path(tempfile.mkdtemp(prefix="two-"))
    folder.chmod(0o755)
    for name in ("in", "tmp", "ray"):
        (folder / name).mkdir(mode=0o755)
    (folder / "in/rows.jsonl").write_text(json.dumps({"text": ROW}) + "\n")
    (folder / "waits.py").write_text(MODEL)
    model = {"kind": "python", "target": "waits:Waits", "kwargs": {"folder": str(folder)}}
    job = {"name": "two", "source": {"kind": "jsonl", "path": str(folder / "in")}, "inference": [model]}
    job |= {"sink": {"kind": "parquet", "path": str(folder / "out")}, "schedule": {"cron": "0 2 1 1 *"}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    started: dict[str, Process] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PREFECT_", "RAY_"))]:
            patch.delenv(name)
        environment = {
            **{"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"},
            **{"RAY_TMPDIR": str(folder / "ray"), "RAY_AUTH_TOKEN": "a" * 64, "TMPDIR": str(folder / "tmp")},
            **{"OVERNIGHT_FORK_SERVER": "", "RAY_USAGE_STATS_ENABLED": "0"},
        }
        try:
            found = Programs(folder, started)
            for name, (arguments, is_ready) in PROGRAMS.items():
                started[name] = overnight(folder, *arguments, **environment)
                wait_until(partial(is_ready, found), started[name])
            yield found
        finally:
            for process in started.values():
                end(process)
            shutil.rmtree(folder, ignore_errors=True)


def as_nobody(*command: str) -> str:
    done = subprocess.run([*NOBODY, *command], check=False, capture_output=True, text=True, timeout=120)
    return done.stdout


def test_all_ports_are_of_this_machine_alone(programs: Programs) -> None:
    opened = {(name, each.laddr.ip, each.laddr.port) for name, each in programs.sockets("tcp")}
    assert len(opened) > 4
    assert [each for each in opened if each[1].removeprefix("::ffff:") not in ("127.0.0.1", "::1")] == []


def test_no_server_answers_without_a_login_or_lets_another_origin_read(programs: Programs) -> None:
    answered, ports = [], {each.laddr.port: name for name, each in programs.sockets("tcp")}
    for port, name in ports.items():
        for method, path in REQUESTS:
            try:
                answer = httpx.request(method, f"http://127.0.0.1:{port}{path}", headers=ORIGIN, timeout=10)
            except httpx.TransportError:
                break  # it does not speak HTTP
            is_open = answer.is_success and not answer.text.startswith(("# HELP", "<!"))  # metrics, the UI's page
            if is_open or "access-control-allow-origin" in answer.headers:
                answered.append((name, method, path, answer.status_code, answer.text[:100]))
    assert answered == []


def test_a_preflight_of_another_origin_is_refused_and_the_owner_is_not(programs: Programs) -> None:
    asked = {**ORIGIN, "Access-Control-Request-Method": "POST"}
    preflight = httpx.options(f"{programs.api}/deployments/filter", headers=asked)
    assert (preflight.status_code, "access-control-allow-origin" in preflight.headers) == (400, False)
    environment = {**os.environ, "PREFECT_HOME": str(programs.folder / "prefect"), "PREFECT_API_URL": programs.api}
    command = [sys.executable, "-m", "prefect", "deployment", "ls"]
    listed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
    assert "batch-inference" in listed.stdout


def test_no_socket_of_a_file_lets_another_user_in(programs: Programs) -> None:
    paths = {each.laddr for _, each in programs.sockets("unix") if each.laddr}
    assert paths
    assert [path for path in paths if path.startswith(("\0", "@"))] == []  # abstract: open to everyone
    assert as_nobody("find", *sorted(path for path in paths if path.startswith("/")), "-writable") == ""


@pytest.mark.parametrize("name", FILES)
def test_another_user_reads_and_writes_no_file(name: str, programs: Programs) -> None:
    assert as_nobody("find", str(programs.folder / "in"), "-type", "f", "-readable")  # what a user left open
    place = str(programs.folder / FILES[name])
    assert any(Path(place).rglob("*"))
    assert as_nobody("find", place, "!", "-type", "d", "-readable") == ""
    assert as_nobody("find", place, "-writable") == ""


def test_another_user_sees_no_secret_in_the_list_of_processes(programs: Programs) -> None:
    _, _, secret = programs.login.partition(":")
    for process in programs.processes:
        shown = " ".join(process.cmdline())
        assert secret not in shown
        assert "a" * 64 not in shown
    for name in ("environ", "fd", "mem"):
        assert as_nobody("find", f"/proc/{programs.started['run'].pid}/{name}", "-readable", "-type", "f") == ""


def test_the_login_is_in_no_file_but_its_own_two(programs: Programs) -> None:
    secret = programs.login.partition(":")[2].encode()
    files = [file for file in programs.folder.rglob("*") if file.is_file() and not file.is_symlink()]
    holders = sorted(file.name for file in files if secret in file.read_bytes())
    assert holders == ["overnight-login.toml", "profiles.toml"]
