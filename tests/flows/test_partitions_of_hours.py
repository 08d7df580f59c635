"""Hours of two regions from the backfill to the day that reads them, on the session's Ray and Prefect server."""

import json
from datetime import date
from pathlib import Path

import duckdb
import pytest

from overnight.flows.backfill import backfill
from overnight.flows.backfill_plan import planned
from overnight.flows.batch_inference import batch_inference
from overnight.flows.history.history import read_history
from overnight.flows.history.pages import job_page
from overnight.flows.job.loading import JobFile, load_job
from overnight.flows.ledger.garbage_collection import collect_garbage
from overnight.flows.ledger.partition_status import read_ledger
from overnight.tasks.errors import OvernightError
from tests.jobs import write_job

DAY = date(2026, 2, 28)
POISONED = "2026-02-28T22,us"
HOURS = {"hour": "hour", "region": ["eu", "us"], "start": "2026-02-28T21"}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for hour in (21, 22, 23):
        for region in ("eu", "us"):
            folder = tmp_path / f"in/{region}/2026-02-28/{hour}"
            folder.mkdir(parents=True)
            (folder / "a.jsonl").write_text(f'{{"n": {hour}}}\n' if region == "eu" else '{"n": 1}\n{"n": 2}\n')
    source = {"kind": "jsonl", "path": f"{tmp_path}/in/{{region}}/{{date}}/{{hour}}/"}
    settings = {"name": "hours", "source": source, "sink": {"kind": "parquet", "path": f"{tmp_path}/out"}}
    return write_job(tmp_path / "job.yaml", {**settings, "partitions": HOURS})


@pytest.mark.slow
def test_a_poisoned_hour_stops_no_other_is_mended_and_the_day_has_all_rows_once(
    prefect_api: str, ray_session: None, job: Path, tmp_path: Path
) -> None:
    poison = tmp_path / "in/us/2026-02-28/22/a.jsonl"
    good = poison.read_text()
    poison.write_text('{"n": \n')
    with pytest.raises(OvernightError, match=f"1 of 6 partitions failed, first {POISONED}: "):
        backfill(start=DAY, end=DAY, job=str(job))
    statuses = {entry.partition: entry.status for entry in read_ledger(load_job(job), DAY, DAY)}
    assert statuses.pop(POISONED) == "failed"
    assert set(statuses.values()) == {"published"}

    poison.write_text(good)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("date=*/**/*.parquet")}
    assert len(before) == 5
    [step] = planned(JobFile(job), "new", DAY, DAY, where=["region=us"])[2]
    assert step.partition == POISONED
    [entry] = backfill(start=DAY, end=DAY, where=["region=us"], job=str(job))
    assert (entry["partition"], entry["status"]) == (POISONED, "published")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("date=*/**/*.parquet")}
    assert files.items() >= before.items()
    table = duckdb.sql(f"FROM read_parquet('{tmp_path}/out/date=*/**/*.parquet', hive_partitioning = true)")
    rows = table.aggregate("date, hour::text, region, count(*)", "date, hour, region").fetchall()
    assert sorted(rows) == [(DAY, str(h), r, n) for h in (21, 22, 23) for r, n in (("eu", 1), ("us", 2))]

    source = {"kind": "job", "job": str(job)}
    sink = {"kind": "parquet", "path": f"{tmp_path}/daily"}
    daily = {"name": "day", "source": source, "sink": sink, "partitions": {"every": "day"}}
    batch_inference("2026-02-28", job=str(write_job(tmp_path / "day.yaml", daily)))
    rows = duckdb.sql(f"FROM '{tmp_path}/daily/date=2026-02-28/*.parquet'").fetchall()
    assert len(rows) == len({row[0] for row in rows}) == 9
    with pytest.raises(OvernightError, match="expected the partition 2026-03-01T00,eu of the job hours"):
        batch_inference("2026-03-01", job=str(tmp_path / "day.yaml"))
    page = job_page(read_history(load_job(job).state_location, "hours"), None)
    assert "eu 2026-02-28" in page
    assert "us 2026-02-28" in page
    receipt = tmp_path / f"out/_overnight/date,hour,region={POISONED}/receipt.json"
    assert json.loads(receipt.read_text())["rows_out"] == 2
    assert collect_garbage(load_job(job))["job"] == "hours"
