"""The Prefect server is killed in the middle of a run and comes back: the run neither waits for it nor minds."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.conftest import ROWS, assert_exact, newest_flow_run, parts, task_runs, wait_for_parts
from tests.chaos.moments import Moments
from tests.chaos.runs import Start, end, finish, free_ports, set_pace, traced_rows, wait_for
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos
SECONDS_AWAY = 5.0  # at most, and as long as it takes to start
TRIED_TWICE = 32


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Callable[[], subprocess.Popen[str]]]]:
    """The address of a server of the test's own, and what starts it on the same port and database."""
    home = tmp_path_factory.mktemp("server")
    [port] = free_ports(1)
    started: list[subprocess.Popen[str]] = []

    def start_server() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        environment = {**os.environ, "PREFECT_HOME": str(home), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        environment.pop("PREFECT_API_URL", None)
        with open(home / "log", "a") as log:
            started.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True, start_new_session=True)
            )
        return started[-1]

    yield f"http://127.0.0.1:{port}/api", start_server
    for process in started:
        end(process)


def answers(url: str) -> bool:
    try:
        return bool(ask(url, "/health", login=""))
    except OSError:
        return False


def test_a_run_goes_on_and_ends_well_in_the_books_when_its_server_is_killed_and_comes_back(
    start: Start,
    job_folder: Path,
    server: tuple[str, Callable[[], subprocess.Popen[str]]],
    moments: Moments,
) -> None:
    """It comes back while rows stream; killed again, it stays away until the run is at its end."""
    url, start_server = server
    process = start_server()
    wait_for("the server", lambda: answers(url))
    set_pace(job_folder, 0.02)
    run = start(PREFECT_API_URL=url)
    wait_for_parts(run, job_folder, moments.number(2, 5))
    kill_server(process, job_folder, moments)
    set_pace(job_folder, 0.2)  # so that rows stream until it is back
    time.sleep(moments.seconds(0, SECONDS_AWAY))
    assert run.poll() is None
    process = start_server()
    wait_for("the server again", lambda: answers(url))
    assert run.poll() is None
    assert not receipt_is_there(job_folder)
    set_pace(job_folder, 0.02)
    wait_for_parts(run, job_folder, len(parts(job_folder)) + moments.number(1, 2))
    kill_server(process, job_folder, moments)
    set_pace(job_folder, 0)
    wait_for("the receipt", lambda: receipt_is_there(job_folder))
    start_server()
    receipt = finish(run)
    assert_exact(receipt, job_folder)
    assert traced_rows(job_folder) <= ROWS * 9 // 10 + TRIED_TWICE  # in one attempt
    flow_run = newest_flow_run(url)
    assert flow_run["state_type"] == "COMPLETED"
    wait_for("the five task runs", lambda: list(task_runs(url, flow_run["id"]).values()) == ["COMPLETED"] * 5, 60)


def kill_server(process: subprocess.Popen[str], folder: Path, moments: Moments) -> None:
    moments.record("the Prefect server killed", len(parts(folder)))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def receipt_is_there(folder: Path) -> bool:
    return (folder / "out/_overnight/all/receipt.json").exists()
