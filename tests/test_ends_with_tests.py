"""A killed test run leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ends_with_tests import MARK, marked

ROOT = Path(__file__).resolve().parents[1]

# Two processes that nothing else would end: one in a session of its own, one without the mark below it.
LIGHT = """
import os, subprocess, sys, time
from pathlib import Path

def test_it():
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'], env={})"
    subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    time.sleep(1)
    Path(sys.argv[-1]).with_name("ready").write_text(os.environ["OVERNIGHT_TEST_RUN"])
    time.sleep(600)
"""
# All that the session's fixtures start.
SERVERS = """
import os, sys, time
from pathlib import Path

from tests.conftest import *

def test_it(ray_session, prefect_api, s3, postgres):
    Path(sys.argv[-1]).with_name("ready").write_text(os.environ["OVERNIGHT_TEST_RUN"])
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("code", "commands"),
    [
        (LIGHT, ["time.sleep(600)"]),
        pytest.param(
            SERVERS,
            ["prefect server start", "s3_server.py", "postgres", "raylet", "gcs_server"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["processes", "servers"],
)
def test_a_killed_run_leaves_nothing_behind(tmp_path: Path, code: str, commands: list[str]):
    (tmp_path / "test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.ends_with_tests", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    run = subprocess.Popen(
        [*command, "--rootdir", str(tmp_path), str(tmp_path / "test_it.py")],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    mark = _wait_for(lambda: (tmp_path / "ready").exists() and (tmp_path / "ready").read_text(), 240)
    assert mark, "the run never began its test"
    started = [process for found in marked(mark) for process in (found, *found.children(recursive=True))]
    lines = [" ".join(process.cmdline()) for process in started]
    for part in commands:
        assert any(part in line for line in lines), f"{part} does not run: {lines}"
    run.send_signal(signal.SIGKILL)
    run.wait(10)
    assert _wait_for(lambda: not any(process.is_running() for process in started) and not list(marked(mark)), 60), (
        f"left behind: {[process for process in started if process.is_running()]}"
    )


def _wait_for(true, seconds: float):
    deadline = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
