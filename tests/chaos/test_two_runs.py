"""Two runs of one partition: one wins. A holder that was killed loses its lease; one that was frozen cannot publish."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.chaos.conftest import ROWS, ray_process, settled_rows, wait_for_parts
from tests.chaos.runs import Start, finish

pytestmark = pytest.mark.chaos


def table(folder: Path, receipt: dict[str, Any]) -> list[tuple[int, int]]:
    """The published rows, read as a reader lists them; exactly the receipt's files."""
    files = sorted((folder / "out").glob("*.parquet"))
    assert [file.name for file in files] == sorted(receipt["files"])
    return sorted((row["x"], row["twice"]) for file in files for row in pq.read_table(file).to_pylist())


UNDISTURBED = [(x, 2 * x) for x in range(ROWS) if x % 10 != 3]


def test_of_two_runs_at_once_one_publishes_and_the_other_says_who_is_at_work(start: Start, job_folder: Path) -> None:
    first = start()
    wait_for_parts(first, job_folder, 1)
    worker = ray_process("write", job_folder / "trace")
    os.kill(worker, signal.SIGSTOP)  # the stream waits, the run lives on
    stdout, _ = (second := start()).communicate(timeout=120)
    os.kill(worker, signal.SIGCONT)
    assert second.returncode == 1
    failure = json.loads(stdout)
    assert failure["error_type"] == "PartitionBusy"
    assert "is at work on" in failure["error_message"]
    receipt = finish(first)
    assert table(job_folder, receipt) == UNDISTURBED
    assert not (job_folder / "out/_overnight/all/failure.json").exists()


def test_a_frozen_run_loses_its_lease_and_cannot_publish_when_it_wakes_up(start: Start, job_folder: Path) -> None:
    zombie = start()
    wait_for_parts(zombie, job_folder, 2)
    frozen = [zombie.pid, ray_process("write", job_folder / "trace")]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    staged = settled_rows(job_folder)
    receipt = finish(start())
    assert receipt["rows_resumed"] >= staged
    assert table(job_folder, receipt) == UNDISTURBED
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    stdout, stderr = zombie.communicate(timeout=120)
    assert zombie.returncode == 1, stderr
    assert json.loads(stdout)["error_type"] == "LeaseLost"
    assert table(job_folder, receipt) == UNDISTURBED
    assert json.loads((job_folder / "out/_overnight/all/receipt.json").read_text()) == receipt
