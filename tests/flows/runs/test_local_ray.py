"""A Ray of this machine is closed to other users, and is noticed when it has ended."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from overnight.flows.runs.local_ray import REFUSALS, LocalRay, RayEnded, session_folder
from overnight.tasks.errors import JobError

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
STARTED = """
import json, os, sys
os.umask(0o022)
from overnight.flows.runs.local_ray import start_local_ray
import ray
context = start_local_ray(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
os.environ["PYTHONPATH"] = ""
ray.get(ray.remote(lambda: 1).remote())
print(json.dumps(dict(context.address_info)), flush=True)
sys.stdin.read()
"""
ENTERED = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
print("entered", ray.get(ray.remote(lambda: 1).remote()))
"""
# An agent of Ray takes requests at these paths, and runs what they hold.
ANSWERED = """
import sys, urllib.error, urllib.request
for port in sys.argv[1:]:
    for path in ("api/job_agent/jobs/", "get_or_create_runtime_env"):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", b"{}", timeout=10)
            print(port, path, 200)
        except urllib.error.HTTPError as error:
            print(port, path, error.code)
        except Exception:
            pass  # no HTTP
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, short and open to everyone as /tmp is: those of pytest are its user's alone."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def a_local_ray(temporary: Path) -> Iterator[tuple[psutil.Process, dict[str, Any]]]:
    """The process that started a Ray as a run does, and the addresses of that Ray."""
    closed = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ADDRESS", "RAY_TMPDIR")
    environment = {name: value for name, value in os.environ.items() if name not in closed}
    with subprocess.Popen(
        [sys.executable, "-c", STARTED],
        env=environment | {"TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            yield psutil.Process(process.pid), json.loads(process.stdout.readline())
        finally:
            process.communicate("")


def as_nobody(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script of Python as a user without rights, who has a token of Ray of their own."""
    environment = {"HOME": "/nonexistent", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "f" * 64}
    environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # otherwise Ray replaces 127.0.0.1
    command = [*NOBODY, sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_another_user_reads_nothing_of_a_local_ray_and_runs_no_code_in_it(temporary: Path) -> None:
    with a_local_ray(temporary) as (process, addresses):
        tree = [process, *process.children(recursive=True)]
        listeners = [
            (each.name(), connection.laddr)
            for each in tree
            for connection in each.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert len(listeners) >= 6  # of the driver, the GCS, the raylet, its agents and a worker
        assert [(name, ip) for name, (ip, _) in listeners if ip.removeprefix("::ffff:") != "127.0.0.1"] == []
        [folder] = temporary.glob("ray-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        session = Path(addresses["session_dir"])
        assert session.is_relative_to(folder)
        assert list((session / "logs").iterdir())
        if os.geteuid():
            pytest.skip("only root can be another user")
        listed = subprocess.run([*NOBODY, "ls", str(session)], capture_output=True, text=True, check=False)
        assert "Permission denied" in listed.stderr
        entered = as_nobody(ENTERED, addresses["address"])
        assert "entered" not in entered.stdout
        assert "AuthenticationError" in entered.stderr
        answered = as_nobody(ANSWERED, *(str(port) for _, (_, port) in listeners))
        assert answered.stderr == ""
        assert {line.split()[-1] for line in answered.stdout.splitlines()} <= {"401", "403", "404", "405"}
        assert " 401" in answered.stdout


def test_the_folder_of_a_local_ray_is_its_users_alone(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setenv("RAY_TMPDIR", str(temporary / "made"))
    own = temporary / f"made/ray-{os.geteuid()}"
    own.mkdir(parents=True)
    own.chmod(0o777)
    assert session_folder() == f"{own}/s"
    assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("planted", ["a link", "a folder of another user", "a file"])
def test_what_another_user_planted_is_not_used(planted: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(temporary))
    name, elsewhere = temporary / f"ray-{os.geteuid()}", temporary / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    if planted == "a link":
        name.symlink_to(elsewhere)
    elif planted == "a file":
        name.touch()
    elif os.geteuid():
        pytest.skip("only root can make a folder of another user")
    else:
        name.mkdir()
        os.chown(name, 65534, 65534)
    folder = Path(session_folder()).parent
    assert (folder.parent, folder != name) == (temporary, True)
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (os.geteuid(), 0o700)
    assert (elsewhere.stat().st_mode & 0o777, list(elsewhere.iterdir())) == (0o755, [])


def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 60)))
    with pytest.raises(JobError, match=r"at most \d\d bytes in its path, found .*xxx. Set RAY_TMPDIR to a shorter one"):
        session_folder()


def test_a_gcs_that_refuses_several_connections_in_a_row_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        gcs = LocalRay(address)
        for _ in range(REFUSALS + 1):
            gcs.check()
    for _ in range(REFUSALS - 1):
        gcs.check()
    with pytest.raises(RayEnded) as ended:
        gcs.check()
    assert (ended.value.error_type, address in ended.value.message) == ("RayEnded", True)


def test_the_ray_of_a_cluster_is_not_checked() -> None:
    for _ in range(REFUSALS + 1):
        LocalRay("").check()
