"""A server that a worker starts: it is waited for, its errors are shown, and it ends however its worker ends."""

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from overnight.tasks.infer.chat.server_process import ChildServer

STARTS = """
import os, sys, time
from overnight.tasks.infer.chat.server_process import ChildServer

server = ChildServer([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}"], os.environ)
print(server.wait("/", 30), server.port, flush=True)
time.sleep(60)
"""


def serving(code: str) -> ChildServer:
    """A server in whose place runs this code."""
    return ChildServer([sys.executable, "-c", code], os.environ)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("kills_children", [False, True])
def test_a_server_ends_with_the_worker_that_is_killed(kills_children: bool) -> None:
    """As Ray does it, which kills the children of a worker that ends."""
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        port = int(worker.stdout.readline())
        family = psutil.Process(worker.pid).children(recursive=True)
        assert listens(port)
        assert len(family) == 3
        if kills_children:
            [child] = psutil.Process(worker.pid).children()
            child.kill()
        worker.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, 10)
    assert not alive
    assert not listens(port)


def test_a_server_that_does_not_answer_in_time_is_reported_and_ended() -> None:
    server = serving("print('loading', flush=True); import time; time.sleep(60)")
    started = time.monotonic()
    assert "it did not answer within 2 s: loading" in server.wait("/health", 2)
    server.end()
    assert time.monotonic() < started + 10
    assert "it ended with code" in server.ended()


def test_the_first_error_of_a_server_that_ends_is_reported_too() -> None:
    first = "(Worker) ERROR [a.py:1] ValueError: too little memory"
    printed = f"{first}\n" + "like `OSError: x`\n" * 20
    server = ChildServer([sys.executable, "-c", "import os; print(os.environ['PRINTED']); 1 / 0"],
                         {**os.environ, "PRINTED": printed})  # fmt: skip
    problem = server.wait("/health", 20)
    server.end()
    assert problem.count(first) == 1
    assert problem.endswith("ZeroDivisionError: division by zero")
