"""The processes of a run, found by a mark in their environment, which each of them inherits from the first one."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable

import psutil

MARK = "OVERNIGHT_CHAOS"
AGENT = re.compile("ray::(DashboardAgent|RuntimeEnvAgent)")


def processes_with(variable: str, value: str) -> dict[int, str]:
    """Return the command lines, by process id, of the processes that have this variable in their environment.

    Ray's agents are left out: without their Ray they end after a minute, and do nothing until then.
    """
    commands = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if command and process.environ().get(variable) == value and not AGENT.match(command):
                commands[process.pid] = command
    return commands


def send(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal to a process, and return if it existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def end_all(variable: str, value: str) -> None:
    """Kill all processes with the mark, also new ones that they start meanwhile."""
    while pids := processes_with(variable, value):
        for pid in pids:
            send(pid)
        time.sleep(0.1)


def wait_until(happened: Callable[[], object], seconds: float) -> bool:
    """Wait for an event, at most `seconds`, and return if it happened."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if happened():
            return True
        time.sleep(0.05)
    return False
