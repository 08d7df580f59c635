"""A backfill that is killed, interrupted and resumed: what was published stays, and nothing is published twice."""

import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from tests.chaos.moments import Moments
from tests.chaos.runs import Process, Start, finish, kill_flow, wait_until
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos

DAYS = [f"2026-04-{day:02d}" for day in range(1, 8)]
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
def job_folder(tmp_path: Path) -> Path:
    """Seven days of twenty rows, and a model that takes about a second for each day."""
    for number, day in enumerate(DAYS):
        place = tmp_path / f"in/date={day}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"x": range(number * ROWS, (number + 1) * ROWS)}), place / "a.parquet")
    (tmp_path / "slow_days.py").write_text(MODEL)
    job = {
        "name": "days",
        "retries": {"delay_seconds": 1},
        "source": {"kind": "parquet", "path": str(tmp_path / "in/date={partition}")},
        "inference": [{"kind": "python", "target": "slow_days:Slow", "batch_size": 10}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    return tmp_path


def published(folder: Path) -> dict[str, PartitionStatus]:
    entries = read_ledger(load_job(folder / "job.yaml"))
    return {entry.partition: entry for entry in entries if entry.status == "published"}


def receipts(folder: Path) -> dict[str, list[str]]:
    """Return the names of the receipts of each day: one for each time that it was published."""
    state = folder / "out/_overnight"
    return {day: sorted(path.stem for path in (state / f"date={day}/receipts").glob("*.json")) for day in DAYS}


def wait_for_published(process: Process, folder: Path, count: int, moments: Moments, what: str) -> None:
    wait_until(lambda: len(published(folder)) >= count, process)
    time.sleep(moments.seconds(0, 0.5))
    moments.record(f"{what} with {len(published(folder))} days published")


def test_a_backfill_that_is_killed_then_interrupted_then_resumed_publishes_each_day_once(
    start: Start, job_folder: Path, prefect_api: str, moments: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job_folder)  # the test looks for the model from there too
    process = start("backfill", "job.yaml", "--start", DAYS[0], "--end", DAYS[-1], "--json")
    wait_for_published(process, job_folder, moments.number(1, 2), moments, "the backfill killed")
    kill_flow(process)
    killed = receipts(job_folder)
    assert 1 <= len(published(job_folder)) < len(DAYS) - 2
    [record] = (job_folder / "out/_overnight/backfills").glob("*.json")
    died = states_of_backfill(prefect_api, record.stem)

    resume = ("backfill", "job.yaml", "--resume", record.stem, "--json")
    process = start(*resume, "--max-concurrent", "2")
    count = len(published(job_folder)) + moments.number(1, 2)
    wait_for_published(process, job_folder, count, moments, "the backfill interrupted")
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    said = {entry["partition"]: entry["status"] for entry in finish(process, code=1)}
    assert time.monotonic() - began < 40
    assert set(said) == {day for day in DAYS if not killed[day]}
    assert set(said.values()) == {"published", "missing"}
    # A flow that is killed before it holds its partition is not missed: it stays Running in the books.
    states = states_of_backfill(prefect_api, record.stem)
    assert {state for run, state in states.items() if run not in died} <= {"COMPLETED", "CANCELLED"}
    interrupted = receipts(job_folder)
    assert all(interrupted[day] == names for day, names in killed.items() if names)

    done: Any = finish(start(*resume))
    assert [entry["partition"] for entry in done] == [day for day in DAYS if not interrupted[day]]
    after = receipts(job_folder)
    assert {day: len(names) for day, names in after.items()} == dict.fromkeys(DAYS, 1)
    assert all(after[day] == names for day, names in interrupted.items() if names)
    for number, (day, entry) in enumerate(sorted(published(job_folder).items())):
        assert day == DAYS[number]
        rows = [row for file in (entry.receipt or {})["files"] for row in pq.read_table(f"out/{file}").to_pylist()]
        numbers = range(number * ROWS, (number + 1) * ROWS)
        assert sorted((row["x"], row["twice"]) for row in rows) == [(x, 2 * x) for x in numbers]


def states_of_backfill(api: str, backfill: str) -> dict[str, str]:
    """Return the states of the flow runs of a backfill's partitions, by flow run id."""
    body: dict[str, Any] = {"flow_runs": {"tags": {"all_": [f"backfill:{backfill}"]}}}
    return {run["id"]: run["state_type"] for run in ask(api, "/flow_runs/filter", body)}
