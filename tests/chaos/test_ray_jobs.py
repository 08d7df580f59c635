"""`ray job submit -- overnight run JOB`: Ray runs the command on the head, from the folder that it was sent."""

import contextlib
import os
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.conftest import assert_exact, receipt_of, write_job
from tests.chaos.runs import MARK, Process, end, free_ports, wait_for

pytestmark = [pytest.mark.chaos, pytest.mark.nightly]
MODEL = """
class Doubled:
    def __call__(self, batch):
        return {"twice": 2 * batch["x"]}
"""
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[str]:
    """The dashboard of a head of its own, as `ray start` starts one. It takes the jobs."""
    port, dashboard, agent, client = free_ports(4)
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        command = [
            *RAY, "start", "--head", "--block", "--num-cpus=2", "--node-ip-address=127.0.0.1", f"--port={port}",
            f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}", f"--temp-dir={folder}",
            f"--ray-client-server-port={client}", "--object-store-memory=200000000",
        ]  # fmt: skip
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "OVERNIGHT_"))}
        folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = inherited | {MARK: mark, "RAY_AUTH_MODE": "disabled", "PATH": folders}
        environment["PREFECT_HOME"] = str(tmp_path / "prefect")
        head = Process(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        head.mark = mark
        try:
            address = f"http://127.0.0.1:{dashboard}"
            wait_for("the dashboard", lambda: answers(f"{address}/api/version"))
            yield address
        finally:
            end(head)


def test_a_submitted_run_publishes_with_a_prefect_server_of_its_own(dashboard: str, tmp_path: Path) -> None:
    folder = tmp_path / "sent"
    folder.mkdir()
    write_job(tmp_path, inference=[{"kind": "python", "target": "sent_model:Doubled"}])
    (tmp_path / "job.yaml").rename(folder / "job.yaml")
    (folder / "sent_model.py").write_text(MODEL)
    command = [*RAY, "job", "submit", f"--address={dashboard}", f"--working-dir={folder}"]
    command += ["--", "overnight", "run", "job.yaml"]
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "prefect/overnight-server.json").exists()
    assert_exact(receipt_of(tmp_path), tmp_path)
