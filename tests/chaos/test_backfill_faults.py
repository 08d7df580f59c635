"""Backfills that are killed, interrupted and cancelled: what was published stays, and nothing is published twice."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from flows.job import load_job
from flows.ledger import Entry, read_ledger
from tests.chaos.runs import Process, Start, wait_for
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos

DAYS = [f"2026-04-{day:02d}" for day in range(1, 9)]
ROWS = 20
MODEL = '''
import time


class Slow:
    """Doubles x, taking half a second for a batch."""

    def __call__(self, batch):
        time.sleep(0.5)
        return {"twice": batch["x"] * 2}
'''


@pytest.fixture
def job_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight days of twenty rows, and a model that takes about a second for each day; the test looks from there too."""
    monkeypatch.chdir(tmp_path)
    for number, day in enumerate(DAYS):
        place = tmp_path / f"in/date={day}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"x": range(number * ROWS, (number + 1) * ROWS)}), place / "a.parquet")
    (tmp_path / "slow_days.py").write_text(MODEL)
    job = {
        "name": "days",
        "source": {"kind": "parquet", "path": str(tmp_path / "in/date={partition}")},
        "inference": [{"kind": "python", "target": "slow_days:Slow", "batch_size": 10}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    return tmp_path


def begin(start: Start, *options: str) -> Process:
    return start("backfill", "job.yaml", "--start", DAYS[0], "--end", DAYS[-1], "--json", *options)


def entries(folder: Path) -> list[Entry]:
    return read_ledger(load_job(folder / "job.yaml"))


def published(folder: Path) -> list[str]:
    return [entry.partition for entry in entries(folder) if entry.status == "published"]


def wait_for_published(folder: Path, count: int, process: Process) -> None:
    def there() -> bool:
        assert process.poll() is None, process.communicate()
        return len(published(folder)) >= count

    wait_for(f"{count} published partitions", there, 240)


def record_of(folder: Path) -> str:
    [path] = (folder / "out/_overnight/backfills").glob("*.json")
    return path.stem


def generations(folder: Path) -> dict[str, list[str]]:
    return {
        day: sorted(path.stem for path in (folder / f"out/_overnight/date={day}/receipts").glob("*.json"))
        for day in DAYS
    }


def assert_all_published_once(folder: Path, before: dict[str, list[str]]) -> None:
    """Each day has its rows, by one publish, and what was published before is that publish."""
    assert published(folder) == DAYS
    after = generations(folder)
    assert {day: len(found) for day, found in after.items()} == dict.fromkeys(DAYS, 1)
    assert all(after[day] == found for day, found in before.items() if found)
    for number, day in enumerate(DAYS):
        files = [
            folder / "out" / file
            for entry in entries(folder)
            if entry.partition == day
            for file in (entry.receipt or {})["files"]
        ]
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        assert sorted((row["x"], row["twice"]) for row in rows) == [
            (x, 2 * x) for x in range(number * ROWS, (number + 1) * ROWS)
        ]


def test_a_backfill_that_is_killed_half_way_is_resumed_and_nothing_is_published_twice(
    start: Start, job_folder: Path
) -> None:
    process = begin(start)
    wait_for_published(job_folder, 3, process)
    process.kill()
    process.communicate()
    before = generations(job_folder)
    assert 3 <= len(published(job_folder)) < len(DAYS)
    again = start("backfill", "job.yaml", "--resume", record_of(job_folder), "--json")
    stdout, stderr = again.communicate(timeout=280)
    assert again.returncode == 0, stderr
    ran = [entry["partition"] for entry in json.loads(stdout)]
    assert ran == [day for day in DAYS if not before[day]]
    assert_all_published_once(job_folder, before)


def test_ctrl_c_ends_a_backfill_and_the_runs_that_it_began(start: Start, job_folder: Path, prefect_api: str) -> None:
    process = begin(start, "--max-concurrent", "2")
    wait_for_published(job_folder, 2, process)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    stdout, stderr = process.communicate(timeout=60)
    assert time.monotonic() - began < 40
    assert process.returncode == 1, stderr
    assert "cancelled" in stderr
    said = {entry["partition"]: entry["status"] for entry in json.loads(stdout)}
    assert set(said) == set(DAYS)
    assert set(said.values()) == {"published", "missing"}
    assert states_of_backfill(prefect_api, record_of(job_folder)) <= {"COMPLETED", "CANCELLED"}
    before = generations(job_folder)
    again = start("backfill", "job.yaml", "--resume", record_of(job_folder), "--json")
    assert again.wait(280) == 0
    assert_all_published_once(job_folder, before)


def states_of_backfill(api: str, backfill: str) -> set[str]:
    """The states of the flow runs of a backfill's partitions."""
    body: dict[str, Any] = {"flow_runs": {"tags": {"all_": [f"backfill:{backfill}"]}}}
    return {run["state_type"] for run in ask(api, "/flow_runs/filter", body)}
