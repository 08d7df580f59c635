"""`overnight run` in processes of their own, for tests that watch, disturb and compare them."""

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

import yaml

Process = subprocess.Popen[str]
Start = Callable[..., Process]


@contextlib.contextmanager
def started_runs(folder: Path, prefect_api: str) -> Iterator[Start]:
    """A function that runs a job in `folder`, behind the command `before`; what it started ends with the body.

    Steps and models find the file that they may leave traces in as TRACE in their environment.
    """
    started: list[Process] = []

    def start(job: dict[str, Any], environment: dict[str, str] | None = None, before: Sequence[str] = ()) -> Process:
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        known = {"PREFECT_API_URL": prefect_api, "TRACE": str(folder / "trace")}
        command = [sys.executable, "-c", "from flows.cli import main; main()", "run", "job.yaml", "--json"]
        started.append(
            subprocess.Popen(
                [*before, *command],
                cwd=folder,
                env={**os.environ, **known, **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def wait_until(happened: Callable[[], bool], process: Process) -> None:
    """Fails if the run ends before, or it takes longer than four minutes."""
    deadline = time.monotonic() + 240
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.05)


def finish(process: Process, code: int = 0) -> dict[str, Any]:
    """What the run says in the end, having ended with `code`."""
    stdout, stderr = process.communicate(timeout=400)
    assert process.returncode == code, stderr
    return dict(json.loads(stdout))


def traced(folder: Path) -> list[str]:
    """The lines that steps and models left so far."""
    trace = folder / "trace"
    return trace.read_text().splitlines() if trace.exists() else []
