"""Results of a job as a run leaves them, written by hand, for commands that only read."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from click.testing import CliRunner

from overnight.cli.main import main

REASON = ("row_id", "uri", "stage", "error_type", "error_message")


def write_job(folder: Path, **more: Any) -> None:
    source = {"kind": "csv", "path": str(folder / "in/date={partition}")}
    job = {"name": "daily", "source": source, "sink": {"kind": "parquet", "path": str(folder / "out")}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job | more))


def write_result(
    folder: Path, day: str, rows: pa.Table, quarantined: dict[str, str] | None = None, sample: str = ""
) -> dict[str, Any]:
    """Write the files of a published partition, or of a sample with this generation."""
    state, generation, bad = folder / "out/_overnight", sample or f"g-{day}", quarantined or {}
    place, ledger = (state / "samples/published", state / "samples") if sample else (folder / "out", state)
    file, ledger = f"date={day}/part-{generation}.parquet", ledger / f"date={day}"
    for directory in (place / f"date={day}", ledger / "receipts"):
        directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, place / file)
    write_quarantine(ledger / f"quarantine/quarantine-{generation}.parquet", bad)
    receipt = {"job": "daily", "partition": day, "status": "published", "generation": generation, "files": [file]}
    receipt |= {"finished_at": "2026-01-09T00:00:00Z", "limit_rows": len(rows) if sample else None}
    receipt |= {"rows_in": len(rows) + len(bad), "rows_out": len(rows), "rows_quarantined": len(bad)}
    receipt |= {"rows_filtered": 0}
    for name in ("receipt.json", f"receipts/{generation}.json"):
        (ledger / name).write_text(json.dumps(receipt))
    return receipt


def write_quarantine(place: Path, reasons: dict[str, str]) -> None:
    """Write a quarantine: row id -> the message of its ValueError."""
    rows = [(row_id, f"/in/{row_id}", "infer", "ValueError", why) for row_id, why in reasons.items()]
    place.parent.mkdir(parents=True, exist_ok=True)
    columns = zip(*rows, strict=True) if rows else [[]] * len(REASON)
    pq.write_table(pa.table({name: pa.array(v, pa.string()) for name, v in zip(REASON, columns, strict=True)}), place)


def typed(command: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code of `overnight COMMAND job.yaml ARGUMENTS`, its stdout and its stderr."""
    done = CliRunner().invoke(main, [command, str(folder / "job.yaml"), *arguments], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr
