"""Tables and databases from a job file, end to end: read, published, and left alone the second time.

tests/contracts/ has what each source and each sink promises; these are whole runs with them, on Ray's workers.
"""

import sqlite3
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from overnight.flows.job.model import Job
from overnight.flows.ledger.garbage_collection import collect_garbage
from overnight.flows.ledger.partition_status import read_ledger
from overnight.tasks.errors import CheckFailed
from overnight.tasks.storage.location import Location
from tests import jobs
from tests.contracts.sinks.publications import read_files
from tests.flows.conftest import RunJob, assert_settled

DAY = "2026-01-02"


@pytest.mark.slow
def test_a_day_of_a_delta_table_is_that_of_another_and_published_again_only_when_it_changed(
    run_job: RunJob, tmp_path: Path
) -> None:
    read, written = f"{tmp_path}/read", f"{tmp_path}/written"

    def add(first: int, count: int, day: int) -> None:
        columns = {"n": range(first, first + count), "day": [date(2026, 1, day)] * count}
        write_deltalake(read, pa.table(columns), partition_by=["day"], mode="append")

    def rows(version: int | None = None) -> list[int]:
        return sorted(DeltaTable(written, version).to_pyarrow_table()["n"].to_pylist())

    add(0, 10, 2)
    add(100, 20, 3)
    source = {"kind": "delta", "path": read, "where": {"day": "{partition}"}}
    job = jobs.job(tmp_path, source=source, sink={"kind": "delta", "path": written})
    receipt = run_job(job, DAY)
    assert_settled(receipt, written=10)
    first = DeltaTable(written).version()
    assert rows() == list(range(10))
    add(200, 5, 3)
    assert run_job(job, DAY) == receipt
    assert DeltaTable(written).version() == first
    add(300, 5, 2)
    again = run_job(job, DAY)
    assert rows() == [*range(10), *range(300, 305)]
    assert rows(first) == list(range(10))
    assert DeltaTable(written).history(1)[0]["overnight"]["generation"] == again["generation"]


@pytest.mark.slow
def test_a_day_of_a_database_goes_to_another_by_key_and_is_taken_up_where_it_was_left(
    run_job: RunJob, tmp_path: Path
) -> None:
    out, state = tmp_path / "out.db", tmp_path / "state"
    with sqlite3.connect(tmp_path / "in.db") as connection:
        connection.execute("CREATE TABLE reviews (id INTEGER, day TEXT, stars INTEGER)")
        rows = [(n * 7, ["2026-01-01", DAY][n % 2], n % 5) for n in range(300)]
        connection.executemany("INSERT INTO reviews VALUES (?, ?, ?)", rows)
    source = {"kind": "sql", "url": f"sqlite:///{tmp_path}/in.db", "key": "id", "rows_per_unit": 20}
    source["query"] = "SELECT * FROM reviews WHERE day = {partition}"
    good = {"kind": "derive_columns", "columns": {"good": "stars > 2"}}
    sink = {"kind": "sql", "url": f"sqlite:///{out}", "table": "judged"}
    job = jobs.job(tmp_path, source=source, preprocess=[good], sink=sink, state=str(state))
    sample = run_job(job, DAY, limit_rows=3)
    assert len(read_files(Location(f"{state}/samples/published"), sample["files"])) == sample["rows_out"] == 3
    with pytest.raises(CheckFailed, match="min_rows"):
        run_job(job | {"checks": {"min_rows": 1000}}, DAY)
    receipt = run_job(job, DAY)
    assert_settled(receipt, written=150)
    assert (receipt["rows_resumed"], receipt["files"]) == (150, [])
    with sqlite3.connect(out) as connection:
        judged = connection.execute("SELECT row_id, good FROM judged").fetchall()
    assert sorted(judged) == sorted((str(n * 7), n % 5 > 2) for n in range(1, 300, 2))
    model = Job.model_validate(job)
    [entry] = read_ledger(model, date(2026, 1, 2), date(2026, 1, 2), inputs=True)
    assert entry.status == "published"
    cleaned = collect_garbage(model, keep_receipts=0, dry_run=False)
    assert {item["what"] for item in cleaned["removed"]} >= {"samples"}
    assert run_job(job, DAY) == receipt
    assert not (state / "published").exists()
