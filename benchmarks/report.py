"""Measure the report of a run: `python benchmarks/report.py FOLDER [--rows 1000 100000 1000000 10000000]`.

Each number of rows is a partition of drawn numbers, classes and texts, beside an earlier partition of the same size.
Their receipts are as a run writes them. A line has the seconds, the CPU seconds and the size of the report, and the
seconds in which headless Chromium opens it: from the navigation to the end of the load, and to the first content.
"""

import argparse
import json
import re
import subprocess
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from websockets.sync.client import ClientConnection, connect

from overnight.flows.job.model import Job
from overnight.flows.report.page import render
from overnight.flows.report.report import read_report
from overnight.tasks.write.checks.column_statistics import describe, summary

ROWS = (1000, 100_000, 1_000_000, 10_000_000)
OPENINGS = 3  # the slowest one counts
ANSWER_SECONDS = 60
DEVTOOLS = re.compile(r"DevTools listening on ws://([^/]+)/")
TIMES = """new Promise(done => setTimeout(() => done(JSON.stringify([
    performance.getEntriesByType('navigation')[0].loadEventEnd,
    performance.getEntriesByName('first-contentful-paint')[0].startTime])), 500))"""
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
    loaded, painted = opening_seconds(folder / "report.html")
    making = f"{seconds:.1f} s, {cpu_seconds:.1f} s of CPU, {len(page) / 1000:,.0f} kB"
    return f"{count:>12,} rows: {making}; opens in {loaded:.2f} s, first content after {painted:.2f} s"


def opening_seconds(page: Path) -> tuple[float, float]:
    """Return the slowest of `OPENINGS`: the seconds to the end of the load, and to the first content."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,900", "--remote-debugging-port=0"]
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", *flags, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
            try:
                assert browser.stderr
                [address] = next(filter(None, map(DEVTOOLS.findall, browser.stderr)))
                tabs = httpx.get(f"http://{address}/json/list").json()
                with connect(tabs[0]["webSocketDebuggerUrl"], max_size=None) as tab:
                    times = [_opened(tab, page.resolve().as_uri()) for _ in range(OPENINGS)]
            finally:
                browser.terminate()
    return max(loaded for loaded, _ in times) / 1000, max(painted for _, painted in times) / 1000


def _opened(tab: ClientConnection, url: str) -> list[float]:
    """Open a page in a tab, and return the milliseconds of its load and of its first content."""
    _ask(tab, "Page.enable")
    tab.send(json.dumps({"id": 2, "method": "Page.navigate", "params": {"url": url}}))
    while json.loads(tab.recv(ANSWER_SECONDS)).get("method") != "Page.loadEventFired":
        pass
    answer = _ask(tab, "Runtime.evaluate", expression=TIMES, awaitPromise=True)
    times: list[float] = json.loads(answer["result"]["value"])
    return times


def _ask(tab: ClientConnection, method: str, **parameters: Any) -> dict[str, Any]:
    """Return the result of a command of the DevTools protocol."""
    tab.send(json.dumps({"id": 1, "method": method, "params": parameters}))
    while (answer := json.loads(tab.recv(ANSWER_SECONDS))).get("id") != 1:
        pass
    result: dict[str, Any] = answer["result"]
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    arguments = parser.parse_args()
    for number in arguments.rows:
        print(measure(arguments.folder / str(number), number), flush=True)
