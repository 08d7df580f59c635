"""Measure what grows with a cluster: `python benchmarks/scaling.py [--nodes 1 2 4] [--planned N ...] [--parts N ...]`.

Nodes: one job on real Ray clusters of a head without CPUs and 1, 2 and 4 nodes of one CPU. The kernel limits each node
to `--share` of a core (cgroup v1, as root), so that four nodes fit on two cores. Each row costs the same CPU seconds.
The rate is that of the rows between the first and the last staged part. The efficiency is the rate of a node compared
with the rate of one node alone.

Planned: it plans an image model on a GPU beside CPU work, on nodes of 8 CPUs and a GPU.

Parts: the driver's part of a publish of a billion rows in `--parts` parts, step by step: list and read the footers,
merge their ranges, count all rows, find the common schema, divide the parts into files. The parts are real files on
local disk, so a store's delay is excluded. Memory is the process's peak. Requests are those of the whole publish to an
object store: a listing, a footer, a read and a removal of each part.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from ray_cluster import cluster

from overnight.tasks.resources.planner import make_plan
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import _groups, published_schema

CGROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD = 100_000  # µs
ROWS_A_NODE, SECONDS_A_ROW = 1200, 0.02
BILLION = 10**9
MODEL = """
import time
import numpy as np


class Busy:
    def __call__(self, batch):
        for _ in batch["x"]:
            until = time.thread_time() + %s
            while time.thread_time() < until:
                pass
        return {"y": batch["x"]}
"""


@dataclass(frozen=True)
class OnGpu:
    """An image model that takes a GPU, as the planner sees it."""

    name: str = "image"
    kind: str = "image_embedding"
    workers: None = None
    num_cpus: None = None
    num_gpus: float = 1.0
    memory: None = None
    accelerator_type: None = None
    placement: str = "auto"
    resources: dict[str, float] = field(default_factory=dict)


@contextmanager
def limited(share: float) -> Iterator[list[str]]:
    """Yield the beginning of a command that runs within `share` of a core."""
    group = CGROUPS / f"overnight-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD)))
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        for _ in range(100):
            if not (group / "cgroup.procs").read_text().strip():
                break
            time.sleep(0.1)
        group.rmdir()


def run_on(nodes: int, share: float, folder: Path) -> dict[str, float]:
    """Run the job on `nodes` nodes, and return its rate (rows per second) and its seconds."""
    rows, work = ROWS_A_NODE * nodes, folder / f"on-{nodes}"
    (work / "in").mkdir(parents=True)
    for number in range(0, rows, 100):
        pq.write_table(pa.table({"x": np.arange(number, number + 100)}), work / f"in/{number:06d}.parquet")
    (work / "busy.py").write_text(MODEL % SECONDS_A_ROW)
    job = {
        "name": f"nodes-{nodes}",
        "source": {"kind": "parquet", "path": "in"},
        "inference": [{"kind": "python", "target": "busy:Busy", "batch_size": 20, "num_cpus": 0.5}],
        "sink": {"kind": "parquet", "path": str(work / "out"), "rows_per_part": 100},
    }
    (work / "job.yaml").write_text(yaml.safe_dump(job))
    environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect"), "RAY_AUTH_MODE": "disabled"}
    seen: list[tuple[float, int]] = []
    with cluster(folder, nodes, ["--num-cpus=1", "--num-gpus=0"], partial(limited, share)) as address:
        command = [sys.executable, "-c", "from overnight.cli.main import main; main()", "run", "job.yaml", "--json"]
        began = time.perf_counter()
        with open(folder / "log", "a") as log:
            process = subprocess.Popen(
                command, cwd=work, env={**environment, "RAY_ADDRESS": address}, stdout=subprocess.PIPE, stderr=log
            )
        while process.poll() is None:
            parts = len(list((work / "out").glob("_overnight/all/generations/*/parts/*.part")))
            if parts and (not seen or parts > seen[-1][1]):
                seen.append((time.perf_counter(), parts))
            time.sleep(0.2)
        output = process.communicate()[0]
        seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit((folder / "log").read_text()[-3000:])
    assert json.loads(output)["rows_out"] == rows
    (first, some), (last, all_parts) = seen[0], seen[-1]
    return {"rate": (all_parts - some) * 100 / (last - first), "seconds": seconds}


def table_of_nodes(counts: list[int], share: float) -> None:
    print(f"\n{'nodes':>6}{'rows':>8}{'seconds':>9}{'rows a second':>15}{'efficiency':>12}")
    alone = 0.0
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        try:
            for count in counts:
                found = run_on(count, share, folder)
                alone = alone or found["rate"] / count
                efficiency = found["rate"] / count / alone
                rows = ROWS_A_NODE * count
                print(f"{count:6}{rows:8,}{found['seconds']:9.0f}{found['rate']:15.1f}{efficiency:12.2f}", flush=True)
        finally:
            stop = [sys.executable, "-m", "prefect", "server", "stop"]
            environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect")}
            subprocess.run(stop, check=False, env=environment, capture_output=True)


def table_of_plans(counts: list[int]) -> None:
    print(f"\n{'nodes':>6}{'seconds':>9}{'workers':>9}")
    for count in counts:
        nodes = [{"CPU": 8.0, "GPU": 1.0, "memory": 32e9}] * count
        began = time.process_time()
        plan = make_plan([OnGpu()], nodes)
        print(f"{count:6}{time.process_time() - began:9.2f}{plan.pools[0].minimum:9}", flush=True)


def publish(count: int, folder: str) -> None:
    """Print the steps as JSON: name -> CPU seconds, peak MB. The parts in `folder` are made before."""
    parts, steps = Location(f"{folder}/parts"), {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        began = time.process_time()
        found = work()
        status = Path("/proc/self/status").read_text()
        steps[name] = [time.process_time() - began, int(status.split("VmHWM:")[1].split()[0]) / 1024]
        return found

    counts = pa.table({"rows": pa.array([BILLION // count] * count), "first_row": pa.array([0] * count)})
    records = step("footers", lambda: staged_parts.read_records(parts))
    merged = step("merge ranges", lambda: row_ranges.merge([record.ranges for record in records]))
    totals = step("count rows", lambda: row_ranges.count(counts, merged))
    assert totals.written == BILLION // count * count, totals
    step("schema", lambda: published_schema(records))
    groups = step("divide", lambda: _groups(records, merged, 128 * 2**20, lambda taken: False))
    print(json.dumps({"steps": steps, "files": len(groups)}))


def table_of_parts(counts: list[int]) -> None:
    print(f"\n{'parts':>8} {'step':14}{'CPU s':>8}{'peak MB':>9}")
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
            make_parts(count, Location(f"{folder}/parts"))
            command = [sys.executable, __file__, "--publish", str(count), "--folder", folder]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        for name, (seconds, memory) in found["steps"].items():
            print(f"{count:8,} {name:14}{seconds:8.2f}{memory:9.0f}", flush=True)
        requests = -(-count // 1000) + 3 * count
        print(f"{'':8} {requests:,} requests; files to write, with these small parts: {found['files']:,}", flush=True)


def make_parts(count: int, parts: Location) -> None:
    """Write `count` small parts, whose footers together settle a billion rows."""
    table = pa.table({"row_id": ["a#0"], "y": [1.0], "__unit": [0], "__row": [0]})
    stages = {name: {"seconds": 1.0, "rows": 1, "bytes": 1} for name in ("ingest", "preprocess", "infer", "write")}
    errors = staged_parts.DETAILS.empty_table()

    def write(number: int) -> None:
        ranges = pa.table(
            {"unit": [number], "start": [0], "stop": [BILLION // count], "state": pa.array([0], pa.int8())},
            schema=row_ranges.RANGES,
        )
        staged_parts.write_part(parts, f"20260102T000000-aaaaaa-{number:06d}", table, errors, ranges, stages, "none")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(count)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--share", type=float, default=0.4, help="Of a core, for each node.")
    parser.add_argument("--planned", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--parts", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--publish", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.publish:
        publish(arguments.publish, arguments.folder)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that what was started ends, too
    if arguments.planned:
        table_of_plans(arguments.planned)
    if arguments.parts:
        table_of_parts(arguments.parts)
    if arguments.nodes:
        table_of_nodes(arguments.nodes, arguments.share)


if __name__ == "__main__":
    main()
