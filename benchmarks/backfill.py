"""Measure the overhead of a backfill: many small partitions, killed half-way, resumed, compared with a plain loop.

    python benchmarks/backfill.py [--partitions 365] [--rows 200]      on a machine that is otherwise idle

Each partition is one Parquet file, through a small matrix product in NumPy. The plain loop reads, computes and writes
the same files in one process; its time is the compute. The overhead is the backfill's time per partition minus this
compute: Prefect's runs, the lease, the manifest, Ray's tasks and workers, staging, verification, publish and receipt.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

MODEL = """
import numpy as np


class Product:
    def __init__(self):
        self.weights = np.random.default_rng(0).normal(size=(16, 4))

    def __call__(self, batch):
        features = np.stack([batch[f"f{i}"] for i in range(16)], axis=1)
        return {"predicted": (features @ self.weights).argmax(1)}
"""
FIRST = date(2025, 1, 1)


def make(folder: Path, days: list[str], rows: int) -> None:
    """Write the inputs, the predictor and the job file."""
    random = np.random.default_rng(1)
    for day in days:
        place = folder / f"in/date={day}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({f"f{i}": random.normal(size=rows) for i in range(16)}), place / "a.parquet")
    (folder / "product_model.py").write_text(MODEL)
    job = {
        "name": "tiny",
        "source": {"kind": "parquet", "path": "in/date={partition}"},
        "inference": [{"kind": "python", "target": "product_model:Product", "batch_size": 100}],
        "sink": {"kind": "parquet", "path": "out"},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))


def plain_loop(folder: Path, days: list[str]) -> dict[str, list[int]]:
    """Do the same work without orchestration, and return the predictions of each day."""
    sys.path.insert(0, str(folder))
    from product_model import Product  # type: ignore[import-not-found]

    model, predicted = Product(), {}
    for day in days:
        table = pq.read_table(folder / f"in/date={day}/a.parquet")
        found = model({name: table[name].to_numpy() for name in table.column_names})["predicted"]
        place = folder / f"plain/date={day}"
        place.mkdir(parents=True)
        pq.write_table(table.append_column("predicted", pa.array(found)), place / "a.parquet")
        predicted[day] = found.tolist()
    return predicted


def begin(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("overnight")), "backfill", "job.yaml", *options, "--json"]
    environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    with open(folder / "log", "a") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def busy_seconds() -> float:
    """Return the CPU seconds of the whole machine, because killed processes report no usage."""
    user, nice, system = (int(ticks) for ticks in Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def published(folder: Path) -> int:
    return sum(1 for _ in (folder / "out/_overnight").glob("date=*/receipt.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=365)
    parser.add_argument("--rows", type=int, default=200)
    arguments = parser.parse_args()
    days = [(FIRST + timedelta(number)).isoformat() for number in range(arguments.partitions)]
    with tempfile.TemporaryDirectory(prefix="overnight-backfill-") as name:
        folder = Path(name)
        make(folder, days, arguments.rows)
        started = time.perf_counter()
        expected = plain_loop(folder, days)
        compute = (time.perf_counter() - started) / len(days)

        range_ = ("--start", days[0], "--end", days[-1])
        started, busy_before = time.perf_counter(), busy_seconds()
        process = begin(folder, *range_)
        while published(folder) < len(days) // 2 and process.poll() is None:
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        killed, at = time.perf_counter() - started, published(folder)
        [record] = (folder / "out/_overnight/backfills").glob("*.json")
        started = time.perf_counter()
        process = begin(folder, "--resume", record.stem)
        stdout, _ = process.communicate()
        resumed = time.perf_counter() - started
        busy = busy_seconds() - busy_before
        home = {**os.environ, "PREFECT_HOME": str(folder / "prefect")}
        subprocess.run([sys.executable, "-m", "prefect", "server", "stop"], env=home, check=False, capture_output=True)
        assert process.returncode == 0, (folder / "log").read_text()[-3000:]
        entries = json.loads(stdout)
        ran = sum(entry["status"] == "published" for entry in entries)

        doubled = 0
        for day in days:
            receipt = json.loads((folder / f"out/_overnight/date={day}/receipt.json").read_text())
            rows = pa.concat_tables([pq.read_table(folder / "out" / file) for file in receipt["files"]])
            rows = rows.take(np.argsort([int(key.split("#")[1]) for key in rows["row_id"].to_pylist()]))
            assert rows["predicted"].to_pylist() == expected[day], day
            doubled += len(list((folder / f"out/_overnight/date={day}/receipts").glob("*.json"))) - 1
        each = (killed + resumed) / len(days)
        print(f"partitions            {len(days)} of {arguments.rows} rows")
        print(f"published at the kill {at} after {killed:.0f} s; the resume ran {ran} in {resumed:.0f} s")
        print(f"published in the end  {published(folder)}, published twice {doubled}, rows as in the plain loop")
        print(f"per partition         {each:.2f} s, {compute * 1000:.1f} ms of it compute")
        print(f"orchestration         {each - compute:.2f} s per partition")
        print(f"CPU                   {busy / len(days):.2f} s per partition, of the whole machine")


if __name__ == "__main__":
    main()
