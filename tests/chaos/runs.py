"""`overnight` in processes of its own, a model that takes its time, and waiting for events. No fixtures.

Each process that a test starts has a mark in its environment. Whatever it starts inherits the mark: its Ray, the flows
that it serves. So a test finds all of them, and `end` kills them all, stopped ones included.
"""

import contextlib
import contextvars
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from overnight.flows.chaos.processes import processes_with, send
from tests.conftest import WORKER_PATH

SHORT_WAITS = {"PREFECT_RUNNER_POLL_FREQUENCY": "1", "PREFECT_WORKER_QUERY_SECONDS": "1"}
T = TypeVar("T")
MARK, SESSION = "CHAOS_MARK", f"session-{os.getpid()}"
# Before a command that must end on Ctrl-C: whoever starts the tests may ignore SIGINT, and its children inherit that.
SIGINT_NOT_IGNORED = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])",
)
# A dead run's lease expires after 30 s: here after 10 s.
COMMAND = """
from overnight.cli.main import main
from overnight.tasks.state import lease
lease.RENEWAL_SECONDS, lease.EXPIRY_SECONDS = 2.0, 10.0
main(prog_name="overnight")
"""
MODEL = '''
import time
from pathlib import Path


class Slow:
    """Doubles x, as slowly as the file `pace` says, and leaves a trace of every row that it saw."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __call__(self, batch):
        for _ in batch["x"]:
            time.sleep(float((self.folder / "pace").read_text()))
        with open(self.folder / "trace", "a") as trace:
            trace.write("".join(f"{x}\\n" for x in batch["x"]))
        return {"twice": batch["x"] * 2}
'''
SECONDS_A_ROW = 0.004


class Process(subprocess.Popen[str]):
    """A process that a test started. `mark`: what its environment has as `CHAOS_MARK`."""

    mark = ""


Start = Callable[..., Process]


def slow_model(folder: Path, seconds_a_row: float = SECONDS_A_ROW) -> dict[str, Any]:
    """Return a model of `kind: python` that leaves its trace in `folder`, and write its module for all workers."""
    (WORKER_PATH / "slow_model.py").write_text(MODEL)
    set_pace(folder, seconds_a_row)
    return {"kind": "python", "target": "slow_model:Slow", "kwargs": {"folder": str(folder)}}


def set_pace(folder: Path, seconds_a_row: float) -> None:
    """Set what a row takes from now on."""
    (folder / "next_pace").write_text(str(seconds_a_row))
    (folder / "next_pace").rename(folder / "pace")


@contextlib.contextmanager
def started_runs(folder: Path, prefect_api: str) -> Iterator[Start]:
    """Yield a function that starts `overnight` with one Prefect server; end with the body what it started."""
    started: list[Process] = []

    def start(*arguments: str, before: Sequence[str] = (), **environment: str) -> Process:
        environment = {"PREFECT_API_URL": prefect_api, **environment}
        started.append(overnight(folder, *arguments, before=before, **environment))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            end(process)


def overnight(folder: Path, *arguments: str, before: Sequence[str] = (), **environment: str) -> Process:
    """Start `overnight run job.yaml --json`, `overnight ARGUMENTS` or a worker ("worker"), in a process group.

    Args:
        folder: The working directory.
        before: What stands before the command.
        environment: Added to this process's. `OVERNIGHT_FORK_SERVER=""` gives the command a fork server of its own,
            instead of the one that the tests share.
    """
    arguments = arguments or ("run", "job.yaml", "--json")
    command = [sys.executable, "-c", COMMAND, *arguments]
    if arguments == ("worker",):
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "overnight", "--type", "process"]
    return start_marked(folder, *before, *command, **environment)


def start_marked(folder: Path, *command: str, **environment: str) -> Process:
    """Start a command in a process group, with a mark and the workers' path in its environment."""
    mark, path = uuid.uuid4().hex, os.pathsep.join([str(WORKER_PATH), os.environ.get("PYTHONPATH", "")])
    process = Process(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path.strip(os.pathsep), MARK: mark, **SHORT_WAITS, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    process.mark = mark
    return process


def end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a process that a test started, of its group and of all that has its mark."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in marked(getattr(process, "mark", "")):
        kill(pid)
    process.communicate()


def marked(mark: str) -> list[int]:
    """Return the ids of all processes with this mark, agents included."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if mark and process.environ().get(MARK) == mark:
                found.append(process.pid)
    return found


def kill(pid: int) -> bool:
    """Kill a process; return whether it was there."""
    return send(pid)


def ray_processes(title: str, process: Process | None = None) -> list[int]:
    """Return the ids of the processes of a run, or of the session's Ray, that Ray titled `ray::...TITLE...`."""
    found = processes_with(MARK, process.mark if process else SESSION)
    return [pid for pid, command in found.items() if command.startswith("ray::") and title in command]


def forked_processes() -> list[int]:
    """Return the ids of the processes that were forked of the session's fork server; newest last."""
    command_lines = processes_with(MARK, SESSION)
    found = [pid for pid, command in command_lines.items() if "overnight.tasks.workers.fork_server" in command]
    there = [psutil.Process(pid) for pid in found if psutil.pid_exists(pid)]
    return [each.pid for each in sorted(there, key=psutil.Process.create_time) if each.ppid() in found]


def kill_flow(process: Process) -> None:
    """Kill a run's own process, and wait until its Ray is gone: Ray's processes notice that their driver died."""
    process.kill()
    process.communicate()
    wait_for_end(process)


def wait_for_end(process: Process, seconds: float = 60) -> None:
    """Wait until all that a process started is gone."""
    wait_for("the end of what it started", lambda: not processes_with(MARK, process.mark), seconds)


def free_ports(count: int) -> list[int]:
    """Return so many ports that are free now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def answers(host: str, port: int) -> bool:
    """Return whether a process listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@contextlib.contextmanager
def in_background(work: Callable[..., T], *arguments: Any) -> Iterator[Future[T]]:
    """Yield the future of `work(*arguments)`, which a thread does in this context; wait for it after the body."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(contextvars.copy_context().run, work, *arguments)


def finish(process: Process, code: int = 0) -> Any:
    """Return the JSON that the command prints in the end, once it has ended with `code`."""
    stdout, stderr = process.communicate(timeout=400)
    assert process.returncode == code, stderr
    return json.loads(stdout)


def traced_rows(folder: Path) -> int:
    """Return how many rows steps and models have seen, in all attempts."""
    return len((folder / "trace").read_text().splitlines()) if (folder / "trace").exists() else 0


def wait_until(happened: Callable[[], Any], process: subprocess.Popen[str]) -> None:
    """Wait for an event of a run. Fail if the process ends before, or if it takes longer than eight minutes."""

    def alive_and_happened() -> Any:
        assert process.poll() is None, process.communicate()
        return happened()

    wait_for("what the test waits for", alive_and_happened, 480)


def wait_for(what: str, true: Callable[[], Any], seconds: float = 120) -> Any:
    """Return what `true` returns once that is something. Fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.05)
    return pytest.fail(f"not in {seconds} s: {what}")
