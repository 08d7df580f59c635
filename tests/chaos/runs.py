"""`overnight` in processes of its own, a model that takes its time, and waiting for what they do. No fixtures."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks import fork_server

Process = subprocess.Popen[str]
Start = Callable[..., Process]

SHORT_WAITS = {"PREFECT_RUNNER_POLL_FREQUENCY": "2", "PREFECT_WORKER_QUERY_SECONDS": "2"}
MODEL = '''
import os
import time


class Slow:
    """Doubles x, taking its time, and leaves a trace of every row that it saw."""

    def __call__(self, batch):
        time.sleep(float(os.environ.get("SECONDS_PER_ROW", 0.004)) * len(batch["x"]))
        with open(os.environ["TRACE"], "a") as trace:
            trace.write("".join(f"{x}\\n" for x in batch["x"]))
        return {"twice": batch["x"] * 2}
'''


def write_model(folder: Path) -> None:
    """`slow_model:Slow`, for the jobs of a folder."""
    (folder / "slow_model.py").write_text(MODEL)


@contextlib.contextmanager
def started_runs(folder: Path, prefect_api: str) -> Iterator[Start]:
    """A function that starts what `overnight` does, for one server; what it started ends with the body."""
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
    """`overnight run job.yaml --json`, `overnight ARGUMENTS` or a worker ("worker"), in a process group of its own.

    Behind the command `before`. Steps and models find the file that they leave traces in as TRACE; the model takes
    SECONDS_PER_ROW, or 0.004.
    """
    arguments = arguments or ("run", "job.yaml", "--json")
    command = [sys.executable, "-c", "from flows.cli import main; main(prog_name='overnight')", *arguments]
    if arguments == ("worker",):
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "overnight", "--type", "process"]
    inherited = {name: value for name, value in os.environ.items() if name != fork_server.ADDRESS}
    return subprocess.Popen(
        [*before, *command],
        cwd=folder,
        env={**inherited, "TRACE": str(folder / "trace"), **SHORT_WAITS, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: Process) -> None:
    """Kills what is left of a process group that a test started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.communicate()


def finish(process: Process, code: int = 0) -> dict[str, Any]:
    """What the run says in the end, having ended with `code`."""
    stdout, stderr = process.communicate(timeout=400)
    assert process.returncode == code, stderr
    return dict(json.loads(stdout))


def traced_rows(folder: Path) -> int:
    """Rows that steps and models have seen, in all attempts."""
    return len((folder / "trace").read_text().splitlines()) if (folder / "trace").exists() else 0


def wait_until(happened: Callable[[], Any], process: Process) -> None:
    """Fails if the process ends before, or it takes longer than four minutes."""

    def alive_and_happened() -> Any:
        assert process.poll() is None, process.communicate()
        return happened()

    wait_for("what the test waits for", alive_and_happened, 240)


def wait_for(what: str, true: Callable[[], Any], seconds: float = 120) -> Any:
    """What `true` returns once that is something. Fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.1)
    return pytest.fail(f"not in {seconds} s: {what}")
