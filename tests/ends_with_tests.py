"""What a test run starts ends with it, even if you kill the run: servers, Ray, and commands under test.

Every process of a run inherits a mark in its environment. A watcher waits at a pipe, and the pipe closes when pytest
dies. Then the watcher kills the processes with the mark and their children. An orderly end is left to the fixtures.

Ray's agents hide the mark behind their titles, and would end a minute later by themselves. The watcher knows them as
orphans in the process group of the run.

Run as a script, this file is the watcher: `python ends_with_tests.py MARK GROUP`, with the pipe as standard input.
"""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import psutil

MARK = "OVERNIGHT_TEST_RUN"
ORDERLY = b"done"
LOOK_SECONDS = 0.2
LAST_SECONDS = 30.0

_watchers: list["subprocess.Popen[bytes]"] = []


def pytest_configure() -> None:
    """Start the watcher. A worker of pytest-xdist starts its own, with a mark of its own."""
    plain = {name: value for name, value in os.environ.items() if name != MARK}
    os.environ[MARK] = uuid.uuid4().hex
    command = [sys.executable, __file__, os.environ[MARK], str(os.getpgrp())]
    # Ctrl-C in this terminal is not for the watcher.
    _watchers.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=plain, start_new_session=True))


def pytest_unconfigure() -> None:
    while _watchers:
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            _watchers.pop().communicate(ORDERLY, 10)


def watch(mark: str, group: int) -> None:
    """Wait for the end of the run. Kill what the run left, if the end was not orderly."""
    if sys.stdin.buffer.read() == ORDERLY:
        return
    deadline = time.monotonic() + LAST_SECONDS
    # A process may start others while it is killed, so the watcher looks again.
    while (found := [*marked(mark), *_agents(group)]) and time.monotonic() < deadline:
        for process in {*found, *(child for parent in found for child in _children(parent))}:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(LOOK_SECONDS)


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _agents(group: int) -> Iterator[psutil.Process]:
    """Yield Ray's agents of this process group whose Ray is gone."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.name().startswith("ray::") and process.ppid() == 1 and os.getpgid(process.pid) == group:
                yield process


def marked(mark: str) -> Iterator[psutil.Process]:
    """Return the living processes that carry the mark."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]))
