"""A job whose partition reads several of another job: the hours of a day, all regions, or both."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import read_ledger
from overnight.tasks.config.partition_names import partition_folder
from overnight.tasks.errors import InputError, JobError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.job import JobRows
from tests.jobs import write_job
from tests.tasks.ingest.conftest import read_all

HOURS = {"hour": "hour", "region": ["eu", "us"], "start": "2026-03-28T00"}


def job_file(folder: Path, name: str, source: dict[str, Any], **more: Any) -> Path:
    sink = {"kind": more.pop("kind", "parquet"), "path": f"{folder}/{name}"}
    return write_job(folder / f"{name}.yaml", {"name": name, "source": source, "sink": sink, **more})


def reading(folder: Path, upstream: Any, own: Any, kind: str = "parquet", **schedule: Any) -> JobRows:
    source = {"kind": "jsonl", "path": f"{folder}/in/{{partition}}/"}
    first = job_file(folder, "first", source, partitions=upstream, kind=kind)
    more = {"schedule": {"cron": "0 2 * * *", **schedule}} if schedule else {}
    second = job_file(folder, "second", {"kind": "job", "job": str(first)}, partitions=own, **more)
    source_of = load_job(second).source
    assert isinstance(source_of, JobRows)
    return source_of


def publish(folder: Path, columns: str, partition: str, number: int) -> None:
    place = folder / "first" / partition_folder(columns, partition)
    place.mkdir(parents=True, exist_ok=True)
    rows = pa.table({"row_id": [f"a.jsonl#{row}" for row in (0, 1)], "uri": ["u", "u"], "n": [number, number]})
    pq.write_table(rows, place / "part-0.parquet")
    ledger = folder / f"first/_overnight/{columns}={partition}"
    (ledger / "receipts").mkdir(parents=True, exist_ok=True)
    file = str((place / "part-0.parquet").relative_to(folder / "first"))
    receipt = json.dumps({"job": "first", "generation": "1", "files": [file]})
    (ledger / "receipt.json").write_text(receipt)
    (ledger / "receipts/1.json").write_text(receipt)


def test_a_day_waits_for_its_hours_and_reads_the_rows_of_all_with_names_of_their_own(tmp_path: Path) -> None:
    source = reading(tmp_path, HOURS, {"every": "day"}, timezone="Europe/Berlin")
    names = source.upstream.names("2026-03-29")  # the clock skips an hour
    assert (names[0], names[-1], len(names)) == ("2026-03-28T23,eu", "2026-03-29T21,us", 46)
    assert len(source.upstream.names("2026-10-25")) == 50
    for number, name in enumerate(names[1:]):
        publish(tmp_path, "date,hour,region", name, number)
    assert source.lacking("2026-03-29").startswith("expected the partition 2026-03-28T23,eu of the job first")
    with pytest.raises(InputError, match="2026-03-28T23,eu"):
        source.snapshot("2026-03-29")
    publish(tmp_path, "date,hour,region", names[0], 99)
    assert source.lacking("2026-03-29") == ""
    pinned = source.at(source.snapshot("2026-03-29"))
    units = pinned.units(list_inputs(pinned, "2026-03-29"))
    rows = list(read_all(pinned, units, pinned.common_schema(units, "2026-03-29")).good.values())
    assert len({row["row_id"] for row in rows}) == len(rows) == 92
    first = min(rows, key=lambda row: row["row_id"])
    assert first == {"row_id": "2026-03-28/23/eu/a.jsonl#0", "uri": "u", "n": 99, "hour": "23", "region": "eu"}


def test_a_region_of_a_day_reads_its_own_and_a_job_without_the_key_the_same_partitions(tmp_path: Path) -> None:
    source = reading(tmp_path, HOURS, {"date": "day", "region": ["eu"]})
    assert source.upstream.names("2026-11-19,eu")[::23] == ["2026-11-19T00,eu", "2026-11-19T23,eu"]
    same = reading(tmp_path, HOURS, None)
    assert same.upstream.shorter is None
    job = load_job(tmp_path / "second.yaml")
    assert job.sink.partition_column == "date,hour,region"
    names = [entry.partition for entry in read_ledger(job, date(2026, 3, 28), date(2026, 3, 28))]
    assert (names[0], len(names)) == ("2026-03-28T00,eu", 48)
    weeks = reading(tmp_path, {"every": "day"}, {"every": "week"})
    assert weeks.upstream.names("2026-W01")[::6] == ["2025-12-29", "2026-01-04"]
    plain = reading(tmp_path, None, {"every": "month"})
    assert plain.upstream.names("2024-02")[-1] == "2024-02-29"


REFUSED: list[tuple[Any, Any, dict[str, Any], str]] = [
    ({"every": "day"}, {"every": "hour"}, {}, "expected partitions of day in UTC, or longer ones"),
    ({"every": "week"}, {"every": "month"}, {}, "expected partitions of week"),
    ({"every": "day"}, {"every": "day"}, {"timezone": "Asia/Tokyo"}, "in UTC"),
    ({"every": "day"}, {"every": "week"}, {"timezone": "Asia/Tokyo"}, "in UTC"),
    ({"every": "hour"}, {"hour": "hour", "region": ["eu"]}, {}, "expected values of no column, found region"),
    ({"region": ["eu"]}, {"every": "day"}, {}, "expected partitions of values"),
    ({"every": "hour"}, {"every": "day"}, {"kind": "csv"}, "a sink of kind parquet, delta, iceberg"),
]  # fmt: skip


@pytest.mark.parametrize(("upstream", "own", "options", "message"), REFUSED)
def test_pairs_that_would_read_rows_twice_are_refused(
    upstream: Any, own: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(JobError, match=message):
        reading(tmp_path, upstream, own, **options)
