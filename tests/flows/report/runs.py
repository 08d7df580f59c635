"""Published partitions and receipts, written by hand, for the tests of the page."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.flows.job.model import Job

QUARANTINE = ("row_id", "uri", "stage", "error_type", "error_message")
STAGES = {
    "ingest": {"seconds": 2.0, "rows": 10, "bytes": 1000, "started_at": "2026-01-01T00:00:10.000Z"},
    "infer": {"seconds": 6.0, "rows": 10, "bytes": 100, "started_at": "2026-01-01T00:00:20.000Z"},
}


def job_of(folder: Path, **more: Any) -> Job:
    source = {"kind": "csv", "path": str(folder / "in/date={partition}")}
    sink = {"kind": "parquet", "path": str(folder / "out")}
    return Job.model_validate({"name": "daily", "source": source, "sink": sink} | more)


def receipt_of(day: str, columns: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a receipt of 10 rows, whose stages ran for 60 of 100 seconds."""
    stages = {name: stage | {"finished_at": "2026-01-01T00:01:10.000Z"} for name, stage in STAGES.items()}
    receipt = {"job": "daily", "partition": day, "status": "published", "generation": f"g-{day}", "attempt": f"a-{day}"}
    receipt |= {"rows_in": 10, "rows_out": 10, "rows_filtered": 0, "rows_quarantined": 0, "rows_written": 10}
    receipt |= {"started_at": "2026-01-01T00:00:00.000Z", "finished_at": "2026-01-01T00:01:40.000Z"}
    return {**receipt, "files": [], "columns": columns or {}, "stages": stages, **more}


def publish(
    folder: Path, receipt: dict[str, Any], rows: pa.Table | None = None, failed: tuple[tuple[str, ...], ...] = ()
) -> dict[str, Any]:
    """Write the rows, the quarantine and the receipt of a partition, and return the receipt."""
    day, state = receipt["partition"], folder / f"out/_overnight/date={receipt['partition']}"
    (state / "receipts").mkdir(parents=True, exist_ok=True)
    if rows is not None:
        file = f"date={day}/part.parquet"
        (folder / "out" / file).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, folder / "out" / file)
        receipt = receipt | {"files": [file], "rows_out": len(rows)}
    write_quarantine(state / f"quarantine/quarantine-{receipt['generation']}.parquet", failed)
    for name in ("receipt.json", f"receipts/{receipt['generation']}.json"):
        (state / name).write_text(json.dumps(receipt))
    return receipt


def write_quarantine(place: Path, failed: tuple[tuple[str, ...], ...]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    table = {name: pa.array([row[n] for row in failed], pa.string()) for n, name in enumerate(QUARANTINE)}
    pq.write_table(pa.table(table), place)
