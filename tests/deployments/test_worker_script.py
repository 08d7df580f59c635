"""The script of the Compose file's worker, with a real Prefect worker and a stand-in for Ray's node."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.chaos.runs import SIGINT_NOT_IGNORED, wait_for

SCRIPT = Path(__file__).resolve().parents[2] / "deployments/docker/worker.sh"


@pytest.mark.slow
def test_the_worker_and_its_node_end_on_sigterm(prefect_api: str, tmp_path: Path) -> None:
    for name, command in {"ray": "exec sleep 600", "prefect": f'exec "{sys.executable}" -m prefect "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{command}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PREFECT_API_URL": prefect_api,
        "PREFECT_WORKER_WEBSERVER_PORT": "0",
        "RAY_ADDRESS": "nowhere:6379",
    }
    log = tmp_path / "log"
    with log.open("w") as output:
        script = subprocess.Popen(
            [*SIGINT_NOT_IGNORED, "bash", SCRIPT], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    started = []
    try:
        wait_for("the worker", lambda: "started" in log.read_text(), 60)
        started = psutil.Process(script.pid).children(recursive=True)
        script.send_signal(signal.SIGTERM)
        assert script.wait(20) == 0, log.read_text()
        assert psutil.wait_procs(started, 5)[1] == []
    finally:
        script.kill()
        for process in started:
            if process.is_running():
                process.kill()
