"""Measure the report of a run: `python benchmarks/report.py FOLDER [--rows 1000 100000 10000000]`.

Each number of rows is a partition of drawn numbers, classes and texts, beside an earlier partition of the same size.
Their receipts are as a run writes them. A line has the seconds, the CPU seconds and the size of the report.
"""

import argparse
import json
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.flows.job.model import Job
from overnight.flows.report.page import render
from overnight.flows.report.report import read_report
from overnight.tasks.write.checks.column_statistics import describe, summary

ROWS = (1000, 100_000, 10_000_000)
ROWS_A_FILE = 1_000_000
DAYS = (date(2026, 1, 1), date(2026, 1, 2))


def make_rows(count: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    columns = {
        "row_id": [f"part.parquet#{number}" for number in range(count)],
        "amount": draw.lognormal(3, 1, count),
        "country": draw.choice(["DE", "FR", "JP", "US"], count),
        "age": draw.integers(18, 90, count),
        "text": [f"a text of the row {number}" for number in range(count)],
        "label": draw.choice(["churn", "keep"], count, p=[0.1, 0.9]),
        "predicted_label": draw.choice(["churn", "keep"], count, p=[0.1, 0.9]),
        "confidence": draw.beta(9, 2, count),
    }
    return pa.table(columns)


def publish(job: Job, folder: Path, day: date, count: int) -> dict[str, Any]:
    """Write a partition with its receipt, and return the receipt. Beyond `ROWS_A_FILE` rows, one file counts often."""
    rows = make_rows(min(count, ROWS_A_FILE), day.day)
    file = f"date={day}/part.parquet"
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / file)
    start = f"{day + timedelta(1)}T02:00:0"
    times = {"started_at": f"{start}1.000Z", "finished_at": f"{start}8.000Z"}
    receipt = {
        **{"job": job.name, "partition": str(day), "status": "published", "generation": f"g-{day}", "attempt": "a"},
        **{"rows_in": count, "rows_out": count, "rows_filtered": 0, "rows_quarantined": 0, "rows_written": count},
        **{"started_at": f"{start}0.000Z", "finished_at": f"{start}9.000Z", "seconds": 9.0},
        "files": [file] * -(-count // ROWS_A_FILE),
        "columns": summary(describe(rows), ()),
        "stages": {"infer": {"rows": count, "bytes": rows.nbytes, "seconds": 9.0, **times}},
    }
    ledger = folder / f"_overnight/date={day}"
    ledger.mkdir(parents=True, exist_ok=True)
    (ledger / "receipt.json").write_text(json.dumps(receipt))
    return receipt


def measure(folder: Path, count: int) -> str:
    sink = {"kind": "parquet", "path": str(folder)}
    source = {"kind": "parquet", "path": str(folder / "in/date={partition}")}
    job = Job.model_validate({"name": "report", "source": source, "sink": sink})
    _, receipt = [publish(job, folder, day, count) for day in DAYS]
    start, cpu_start = time.perf_counter(), time.process_time()
    page = render(read_report(job, receipt)).encode()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    (folder / "report.html").write_bytes(page)
    return f"{count:>12,} rows: {seconds:.1f} s, {cpu_seconds:.1f} s of CPU, {len(page) / 1000:,.0f} kB"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    arguments = parser.parse_args()
    for number in arguments.rows:
        print(measure(arguments.folder / str(number), number), flush=True)
