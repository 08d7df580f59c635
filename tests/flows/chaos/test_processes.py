"""Processes that are found by a mark in their environment."""

import os
import subprocess
import sys
import time

from overnight.flows.chaos.processes import end_all, processes_with, wait_until


def test_only_processes_with_the_mark_end_and_their_children_do_too() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    mark = f"test-{os.getpid()}-{time.time_ns()}"
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "MARK_OF_TEST": mark}) as process:
        try:
            assert wait_until(lambda: len(processes_with("MARK_OF_TEST", mark)) == 2, 60)
        finally:
            end_all("MARK_OF_TEST", mark)
    assert process.returncode == -9
    assert processes_with("MARK_OF_TEST", mark) == {}
