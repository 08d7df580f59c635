"""What is forked has what was imported before, and its caller's place; the server ends with its body or its caller."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from overnight.flows.runs.local_ray import WORKER_IMPORTS
from overnight.tasks.workers import fork_server
from overnight.tasks.workers.forked_process import in_process_of_its_own
from tests.chaos.runs import wait_for
from tests.tasks.workers.test_forked_process import gone

ROOT = Path(__file__).parents[3]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[psutil.Process]:
    """A server of the test's own, beside the session's."""
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)
    with fork_server.started():
        address = os.environ[fork_server.ADDRESS]
        alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
        [process] = [child for child in alive if address in child.cmdline()]
        yield process


def place() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "folder": os.getcwd(),
        "variable": os.environ.get("TOLD"),
        "has_path": "/somewhere" in sys.path,
        "has_import": "pyclbr" in sys.modules,
        "random": np.random.random(),
    }


def test_it_has_the_place_of_its_caller_and_what_was_imported_before(
    server: psutil.Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_server.preload(["no_such_module", "pyclbr"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOLD", "after the server had started")
    monkeypatch.syspath_prepend("/somewhere")
    first, second = (in_process_of_its_own(place, print) for _ in range(2))
    assert "pyclbr" not in sys.modules
    assert first["pid"] != second["pid"] != os.getpid()
    assert first.pop("random") != second.pop("random")
    del first["pid"]
    assert first == {
        "folder": str(tmp_path),
        "variable": "after the server had started",
        "has_path": True,
        "has_import": True,
    }


def threads_of_parent() -> list[str]:
    folder = Path(f"/proc/{os.getppid()}/task")
    return [(thread / "comm").read_text().strip() for thread in folder.iterdir()]


def test_what_workers_need_starts_no_thread_in_the_server_that_a_fork_would_lose(server: psutil.Process) -> None:
    fork_server.preload(WORKER_IMPORTS)
    threads = in_process_of_its_own(threads_of_parent, print)
    assert sorted(set(threads) - {"jemalloc_bg_thd"}) == [threads[0]]
    assert len(threads) <= 2


def test_a_server_ends_with_the_body_and_one_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)
    assert not fork_server.is_there()
    with fork_server.started():
        address = os.environ[fork_server.ADDRESS]
        with fork_server.started():
            assert os.environ[fork_server.ADDRESS] == address
        assert fork_server.is_there()
    assert not Path(address).exists()
    assert fork_server.ADDRESS not in os.environ


def test_a_server_that_was_killed_is_not_there(server: psutil.Process) -> None:
    assert fork_server.is_there()
    server.kill()
    wait_for("the server to end", lambda: not fork_server.is_there(), 20)
    with fork_server.started():
        assert in_process_of_its_own(os.getpid, print) != os.getpid()


def test_a_server_ends_with_the_process_that_started_it() -> None:
    code = """
from overnight.tasks.workers import fork_server

with fork_server.started():
    print("started", flush=True)
    input()
"""
    environment = {name: value for name, value in os.environ.items() if name != fork_server.ADDRESS}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, **pipes) as caller:
        try:
            caller.stdout.readline()
            [server] = psutil.Process(caller.pid).children()
        finally:
            caller.kill()
    wait_for("the server to end", lambda: gone(server), 20)


@pytest.mark.parametrize(("variable", "value"), [(fork_server.ADDRESS, "0"), ("RAY_ADDRESS", "127.0.0.1:6379")])
def test_a_switch_and_a_ray_elsewhere_do_without_it(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    for name in (fork_server.ADDRESS, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    with fork_server.for_local_ray():
        assert not fork_server.is_there()
