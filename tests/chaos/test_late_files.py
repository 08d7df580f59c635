"""A run after late files is killed at any moment: the next takes it up, and no row is lost, doubled or run again."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.conftest import PER_FILE, ROWS, TRIED_TWICE, parts
from tests.chaos.moments import Moments
from tests.chaos.runs import SECONDS_A_ROW, Start, kill_flow, set_pace, traced_rows, wait_until
from tests.flows.conftest import RunJob, published

pytestmark = pytest.mark.chaos

UNDER_WAY = 120  # rows that are with the model, or behind it and in no part yet, when something dies


def write(folder: Path, name: str, first: int) -> None:
    pq.write_table(pa.table({"x": range(first, first + PER_FILE)}), folder / f"in/{name}.parquet", row_group_size=20)


def published_then_changed(run_job: RunJob, folder: Path) -> list[int]:
    """Publish, change two files, add and delete one; return the x that readers must find in the end."""
    set_pace(folder, 0)
    run_job(folder / "job.yaml")
    for number in (3, 7):
        write(folder, f"{number:02d}", 10_000 * number)
    write(folder, "aa", 90_000)
    (folder / "in/05.parquet").unlink()
    stay = [x for x in range(ROWS) if x // PER_FILE not in (3, 5, 7)]
    new = [first + x for first in (30_000, 70_000, 90_000) for x in range(PER_FILE)]
    return [x for x in stay + new if x % 10 != 3]


def kill_some(start: Start, folder: Path, moments: Moments, kills: int) -> None:
    for _ in range(kills):
        process = start()
        count, is_early = len(parts(folder)), moments.one_of([True, False])
        if not is_early:  # otherwise before or while the rows that stay are staged
            wait_until(lambda count=count: len(parts(folder)) > count, process)
        time.sleep(moments.seconds(0, 1))
        moments.record("the flow killed", len(parts(folder)))
        kill_flow(process)


def assert_as_if_undisturbed(run_job: RunJob, folder: Path, expected: list[int], kills: int, traced: int) -> None:
    set_pace(folder, 0)
    receipt = run_job(folder / "job.yaml")
    rows = published(receipt, folder / "out").to_pylist()
    assert sorted(row["x"] for row in rows) == sorted(expected)
    assert all(row["twice"] == 2 * row["x"] for row in rows)
    assert len({row["row_id"] for row in rows}) == len(rows)
    continued = receipt["continued"]
    assert (continued["rows_reused"], continued["rows_added"], continued["rows_changed"]) == (ROWS - 300, 100, 200)
    assert traced_rows(folder) - traced <= 270 + (kills + 1) * (UNDER_WAY + TRIED_TWICE)


def kill_and_resume(start: Start, folder: Path, moments: Moments, run_job: RunJob, kills: int) -> None:
    expected = published_then_changed(run_job, folder)
    traced = traced_rows(folder)
    set_pace(folder, 10 * SECONDS_A_ROW)
    kill_some(start, folder, moments, kills)
    assert_as_if_undisturbed(run_job, folder, expected, kills, traced)


def test_a_killed_run_after_late_files_is_resumed_exactly(
    start: Start, job_folder: Path, moments: Moments, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overnight.tasks.state.lease.EXPIRY_SECONDS", 10)
    kill_and_resume(start, job_folder, moments, run_job, 3)


@pytest.mark.nightly
@pytest.mark.parametrize("series", range(10))
def test_fifty_kills_of_runs_after_late_files_cost_no_row(
    series: int,
    start: Start,
    job_folder: Path,
    moments: Moments,
    run_job: RunJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is drawn differs by the name of the test."""
    monkeypatch.setattr("overnight.tasks.state.lease.EXPIRY_SECONDS", 10)
    kill_and_resume(start, job_folder, moments, run_job, 5)
