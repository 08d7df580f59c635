"""The status of a partition while its run streams, after the run was killed, and after the next one."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.chaos.conftest import wait_for_parts
from tests.chaos.runs import Start, finish

pytestmark = pytest.mark.chaos


def test_a_run_is_running_then_failed_when_it_was_killed_then_published(start: Start, job_folder: Path) -> None:
    def status() -> dict[str, object]:
        stdout, stderr = start("status", "job.yaml", "--json").communicate(timeout=120)
        assert "Traceback" not in stderr
        [entry] = json.loads(stdout)
        return dict(entry)

    assert status()["status"] == "missing"
    process = start(SECONDS_PER_ROW="0.05")  # still streaming when the status command has started and looked
    wait_for_parts(process, job_folder, 2)
    assert status()["status"] == "running"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    killed = status()
    assert (killed["status"], killed["published_at"]) == ("failed", None)
    assert "died with its process" in str(killed["why"])
    receipt = finish(start())
    published = status()
    assert (published["status"], published["rows_out"]) == ("published", receipt["rows_out"])
