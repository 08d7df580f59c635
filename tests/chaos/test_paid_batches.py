"""Runs that end while a provider works on their batches: the next run goes on, and pays no row twice."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import jobs
from tests.chaos.runs import SIGINT_NOT_IGNORED, Process, Start, finish, kill_flow, started_runs, wait_for
from tests.flows.conftest import assert_settled
from tests.flows.runs.test_batches import ROWS, job_of
from tests.tasks.infer.batch_server import BatchServer, batch_server

pytestmark = pytest.mark.chaos
LONG = 1e6  # seconds of a batch that does not end in a test


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        server.seconds, server.cancel_seconds = LONG, 1.0
        yield server


@pytest.fixture
def start(prefect_api: str, tmp_path: Path, server: BatchServer) -> Iterator[Start]:
    jobs.write_job(tmp_path / "job.yaml", job_of(tmp_path, server))
    with started_runs(tmp_path, prefect_api) as start:
        yield start


def wait_for_batches(process: Process, server: BatchServer) -> None:
    wait_for("three batches", lambda: len(server.batches) == 3 or process.poll() is not None, 200)
    assert process.poll() is None, process.communicate()


def assert_paid_once(receipt: dict, server: BatchServer) -> None:
    assert_settled(receipt, written=ROWS)
    assert set(server.charged.values()) == {1}
    assert len(server.charged) == receipt["batches"]["answered"] == ROWS - 1
    assert sum(server.online.values()) == 1  # before the batches
    assert receipt["batches"]["repeated"] == 0


def test_a_run_that_is_killed_while_it_waits_goes_on_with_its_batches(start: Start, server: BatchServer) -> None:
    process = start()
    wait_for_batches(process, server)
    kill_flow(process)
    server.seconds = 1.0
    assert_paid_once(finish(start()), server)
    assert len(server.batches) == 3


def test_ctrl_c_cancels_the_batches_and_the_next_run_sends_what_they_left(start: Start, server: BatchServer) -> None:
    process = start(before=SIGINT_NOT_IGNORED)
    wait_for_batches(process, server)
    server.offset += LONG / 2
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0, stderr
    assert [batch.state for batch in server.batches.values()] == ["cancelled"] * 3
    assert len(server.charged) == 12
    server.seconds = 1.0
    receipt = finish(start())
    assert_paid_once(receipt, server)
    assert [batch["state"] for batch in receipt["batches"]["batches"]] == ["cancelled", "completed"] * 3
