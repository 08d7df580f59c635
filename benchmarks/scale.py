"""Measure the costs that grow with a partition: `python benchmarks/scale.py [--objects N ...] [--rows N ...]`.

The option `--photos N ...` adds a table.

Objects: it measures the steps of a run before the first row, each number in a process of its own: list, write the
manifest, write the order, shuffle it by files, plan the read tasks. The listing is synthetic and replaces obstore's
responses: 1,000 objects per response, in folders of 10,000, without a delay. So the network and the parsing are
excluded, and everything after them is as in a run. Seconds are wall time and CPU time. Memory is the process's peak in
each step; the libraries' share is the memory before the first step.

Rows: `overnight run` of a small job over Parquet files of 200 rows of 10 kB, through a predictor that sums bytes.
Photos: a job that decodes photos and embeds them with a small CLIP, as in `peers.py`; by default none, because they
take long. Memory is the peak of private memory, of the started process and of the largest worker. Workers are Ray's
workers, also the one that runs the stream, and processes forked for them. Reads are the Ray tasks that read, and writes
are the tasks that staged a part. The first run starts a Prefect server for all runs and is not shown.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from workloads import WORKLOADS, photos

from overnight.tasks.engine.datasource import OrderedRead
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.reading.read_units import Read
from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.shuffle.order import ShuffleFiles
from overnight.tasks.state import read_plan, row_ranges
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.pending_units import write_pending
from overnight.tasks.state.read_plan import reorder
from overnight.tasks.state.run import Run
from overnight.tasks.storage import s3
from overnight.tasks.storage.file_info import Entry
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.s3 import PatientS3
from overnight.tasks.storage.s3_bucket import Bucket

PAGE, FOLDER = 1000, 10_000
PREFIX = "raw/date=2026-01-02/"
ROWS_A_FILE, ROW_BYTES = 200, 10_000  # so that even 20,000 rows make whole blocks of 8 MiB
MODEL = """
import numpy as np


class Sum:
    def __call__(self, batch):
        return {"sum": np.array([sum(data) for data in batch["data"]])}
"""


class MadeUpBucket(Bucket):
    """A bucket that only lists `count` objects."""

    count = 0

    def pages(self, prefix: str, after: str = "") -> Iterator[list[Entry]]:
        folder, _, name = after.removeprefix(PREFIX).rstrip("/jpg.\U0010ffff").partition("/")
        first = int(name) + 1 if name else int(folder or 0) * FOLDER
        for start in range(first, self.count, PAGE):
            yield [_object(number) for number in range(start, min(start + PAGE, self.count))]

    def answers(self, prefix: str, after: str = "", **arguments: Any) -> Iterator[dict[str, Any]]:
        folders = range(-(-self.count // FOLDER)) if prefix == PREFIX else range(0)
        for start in range(0, max(len(folders), 1), PAGE):
            some = folders[start : start + PAGE]
            below = [{"Prefix": f"{PREFIX}{number:05d}/"} for number in some]
            yield {"IsTruncated": start + PAGE < len(folders), "CommonPrefixes": below}


class MadeUpS3(PatientS3):
    """A filesystem whose only bucket is synthetic."""

    def bucket(self, name: str) -> Bucket:
        return MadeUpBucket(self, name)


def _object(number: int) -> Entry:
    etag = f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"
    return Entry(f"bucket/{PREFIX}{number // FOLDER:05d}/{number:08d}.jpg", 100_000, etag, time.time())


def plan(count: int, folder: str) -> None:
    """Print the steps as JSON: name -> seconds, CPU seconds, peak MB; and the number of read tasks."""
    MadeUpBucket.count = count
    s3.PatientS3 = MadeUpS3  # type: ignore[misc]
    run, source = a_run(folder), Images(path="s3://bucket/raw/date={partition}/", anonymous=True)
    before, steps = peak_mb(), {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        started = [time.perf_counter(), time.process_time()]
        found = work()
        now = [time.perf_counter(), time.process_time()]
        steps[name] = [now[0] - started[0], now[1] - started[1], peak_mb()]
        return found

    def order() -> None:
        counts, _ = read_manifest(run.manifest, ["size", "first_row", "rows"])
        write_pending(run.order, run.manifest, counts, row_ranges.merge([]))

    step("list, write the manifest", lambda: take_manifest(run.manifest, source, run.partition))
    step("write the order", order)
    step("plan the read tasks", lambda: OrderedRead(Read(source), run).get_read_tasks(1))
    step("shuffle by files", lambda: reorder(run.order, ShuffleFiles()))
    tasks = len(read_plan.read_summaries(run.order))
    print(json.dumps({"before": before, "steps": steps, "tasks": tasks}))


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def table_of_objects(counts: list[int]) -> None:
    print(f"\n{'objects':>12} {'step':26}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}{'µs an object':>14}")
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="scale-") as folder:
            command = [sys.executable, __file__, "--plan", str(count), "--folder", folder]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        steps = found["steps"]
        seconds, cpu = (sum(values[i] for values in steps.values()) for i in (0, 1))
        steps["all"] = [seconds, cpu, max(values[2] for values in steps.values())]
        for name, (seconds, cpu, memory) in steps.items():
            each = seconds / count * 1e6
            print(f"{count:12,} {name:26}{seconds:9.2f}{cpu:9.2f}{memory:9.0f}{each:14.2f}", flush=True)
        print(f"{'':12} {found['before']:.0f} MB before; {found['tasks']:,} read tasks", flush=True)


def make_rows(folder: Path, count: int) -> Path:
    """Write the inputs, the predictor and the job file of a run over `count` rows."""
    place, random = folder / f"in-{count}", np.random.default_rng(1)
    place.mkdir()
    for number in range(count // ROWS_A_FILE):
        data = [random.bytes(ROW_BYTES) for _ in range(ROWS_A_FILE)]
        pq.write_table(pa.table({"data": data}), place / f"{number:06d}.parquet", compression="none")
    (folder / "sum_model.py").write_text(MODEL)
    job = {
        "source": {"kind": "parquet", "path": f"in-{count}"},
        "inference": [{"kind": "python", "target": "sum_model:Sum", "batch_size": 1000}],
    }
    return make_job(folder, count, job)


def make_photos(folder: Path, count: int) -> Path:
    """Write the photos, the model and the job file of a run over `count` photos."""
    place = folder / f"photos-{count}"
    place.mkdir()
    model = photos(WORKLOADS["photos"], place, count)["model"]
    job = {
        "source": {"kind": "images", "path": str(place / "images")},
        "preprocess": [{"kind": "resize_image", "size": 224, "decode": "fast"}],
        "inference": [{"kind": "image_embedding", "model": model}],
    }
    return make_job(folder, count, job)


def make_job(folder: Path, count: int, job: dict[str, Any]) -> Path:
    path = folder / f"job-{count}.yaml"
    whole = job | {"name": f"scale-{count}", "sink": {"kind": "parquet", "path": f"out-{count}"}}
    path.write_text(yaml.safe_dump(whole))
    return path


def run_rows(folder: Path, job: Path, count: int) -> dict[str, float]:
    """Run the job once, and return its seconds, the peaks of memory, and its numbers of tasks."""
    command = [sys.executable, "-c", "from overnight.cli.main import main; main()", "run", job.name, "--json"]
    environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    peaks, tasks, stop = {"command": 0.0, "worker": 0.0}, {"order": 0, "parts": 0}, threading.Event()
    began = time.perf_counter()
    with open(folder / "log", "a") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log)

    def watch() -> None:
        home = folder / f"out-{count}/_overnight/all/generations"
        while not stop.wait(0.3):
            for name, processes in (("command", [process.pid]), ("worker", workers(environment["PREFECT_HOME"]))):
                peaks[name] = max([peaks[name], *map(private_mb, processes)])
            for order in home.glob("*/attempts/*/order"):
                tasks["order"] = len(read_plan.read_summaries(Location(str(order))))
            tasks["parts"] = max(tasks["parts"], sum(1 for _ in home.glob("*/parts/*.part")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    receipt = json.loads(process.communicate()[0])
    seconds = time.perf_counter() - began
    stop.set()
    watcher.join()
    assert receipt["rows_out"] == count, receipt
    return {
        **peaks,
        "reads": tasks["order"],
        "writes": tasks["parts"],
        "seconds": seconds,
        "stream_seconds": receipt["seconds"],
    }


def workers(home: str) -> list[int]:
    """Return Ray's workers, and the processes forked for them, with this Prefect home in their environment."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                command = (place / "cmdline").read_bytes()
                is_worker = command.startswith(b"ray::") or b"overnight.tasks.workers.fork" in command
                if is_worker and f"PREFECT_HOME={home}\0".encode() in (place / "environ").read_bytes():
                    found.append(int(place.name))
            except OSError:
                continue
    return found


def a_run(folder: str) -> Run:
    """Return an attempt whose sink is `<folder>/out`."""
    sink = Location(f"{folder}/out")
    return Run(
        job="scale",
        partition="2026-01-02",
        partition_column="date",
        state=sink / "_overnight",
        sink=sink,
        generation="generation",
        attempt="20260102T000000-aaaaaa",
        fingerprint="f",
        ingredients={},
        started_at="2026-01-02T00:00:00.000Z",
    )


def private_mb(process: int) -> float:
    try:
        status = Path(f"/proc/{process}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0


def table_of_rows(make: Callable[[Path, int], Path], counts: list[int]) -> None:
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        folder = Path(name)
        try:
            run_rows(folder, make(folder, ROWS_A_FILE), ROWS_A_FILE)
            heads = f"{'command MB':>12}{'worker MB':>11}{'reads':>7}{'writes':>8}{'ms a row':>10}"
            print(f"\n{'rows':>12}{'seconds':>9}{heads}")
            for count in counts:
                found = run_rows(folder, make(folder, count), count)
                print(
                    f"{count:12,}{found['seconds']:9.1f}{found['command']:12.0f}{found['worker']:11.0f}"
                    f"{found['reads']:7.0f}{found['writes']:8.0f}{found['seconds'] / count * 1000:10.3f}",
                    flush=True,
                )
        finally:
            environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect")}
            stop = [sys.executable, "-m", "prefect", "server", "stop"]
            subprocess.run(stop, check=False, env=environment, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, nargs="*", default=[10_000, 1_000_000, 10_000_000])
    parser.add_argument("--rows", type=int, nargs="*", default=[20_000, 200_000])
    parser.add_argument("--photos", type=int, nargs="*", default=[])
    parser.add_argument("--plan", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plan:
        plan(arguments.plan, arguments.folder)
        return
    table_of_objects(arguments.objects)
    for make, counts in ((make_rows, arguments.rows), (make_photos, arguments.photos)):
        if counts:
            table_of_rows(make, counts)


if __name__ == "__main__":
    main()
