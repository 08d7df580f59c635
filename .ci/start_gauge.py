"""Compare the CPU seconds of a small job with those of importing torch and starting Ray.

The job is a table of 1,000 rows and a model in Python, by `overnight run`. Both are measured in the same minute, over
all processes that they start, so the ratio depends little on the machine and its load. This program fails if the ratio
is a fifth above the one in `start_ratio.txt`. A commit that raises that record gives the reason. A second measurement
decides, because the first one may have had bad luck.
"""

import contextlib
import ctypes
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

ROOT, RECORD = Path(__file__).resolve().parents[1], Path(__file__).with_name("start_ratio.txt")
FOLDER = ROOT / ".demo/start-gauge"
INIT = "ray.init('local', include_dashboard=False, log_to_driver=False)"
# When the first task has run, all processes of Ray are there.
FLOOR = f"import torch, ray; {INIT}; ray.get(ray.remote(lambda: 0).remote())"
MODEL = "class Double:\n    def __call__(self, batch):\n        return {'double': batch['x'] * 2}\n"
ROWS, GROWTH, LOOK_SECONDS = 1_000, 1.2, 0.1
PR_SET_CHILD_SUBREAPER = 36  # of Linux: processes whose parent has ended stay below this one


def environment() -> dict[str, str]:
    """Return the demo's variables: its Prefect server runs already, and all state stays below .demo/."""
    sys.path.insert(0, str(ROOT / "demo"))
    from run import environment as demo_environment

    return demo_environment()


def write_job() -> list[str]:
    """Write the table and the job, and return the command that runs it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "rows").mkdir(parents=True)
    table = pa.table({"id": range(ROWS), "x": [number / 7 for number in range(ROWS)]})
    pq.write_table(table, FOLDER / "rows/0.parquet")
    (FOLDER / "double.py").write_text(MODEL)
    job = {
        "name": "start-gauge",
        "source": {"kind": "parquet", "path": str(FOLDER / "rows")},
        "inference": [{"kind": "python", "target": "double:Double", "batch_size": 500}],
        "sink": {"kind": "parquet", "path": str(FOLDER / "out")},
    }
    (FOLDER / "job.yaml").write_text(yaml.safe_dump(job))
    return [str(Path(sys.executable).with_name("overnight")), "run", str(FOLDER / "job.yaml"), "--force"]


def cpu_seconds(command: list[str]) -> float:
    """Run `command`, and return the CPU seconds of all processes that it starts, as the last look at each shows them.

    Processes that still run afterwards, such as a server, do not count later.
    """
    before, seconds = set(psutil.Process().children(recursive=True)), dict[psutil.Process, float]()
    with open(FOLDER / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment(), cwd=ROOT, stdout=log, stderr=log)
    while process.poll() is None:
        for child in set(psutil.Process().children(recursive=True)) - before:
            with contextlib.suppress(psutil.Error):
                times = child.cpu_times()
                seconds[child] = times.user + times.system
        time.sleep(LOOK_SECONDS)
    if process.returncode:
        sys.exit(f"expected exit status 0 of {' '.join(command)}, found {process.returncode}: {log.name}")
    return sum(seconds.values())


def measured_ratio(job: list[str]) -> float:
    """Measure both, print the figures, and return the ratio."""
    floor, used = cpu_seconds([sys.executable, "-c", FLOOR]), cpu_seconds(job)
    print(f"the job: {used:.1f} CPU s; importing torch and starting Ray: {floor:.1f} CPU s; ratio {used / floor:.2f}")
    return used / floor


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    record, job = float(RECORD.read_text()), write_job()
    bound = record * GROWTH
    if measured_ratio(job) > bound and measured_ratio(job) > bound:
        sys.exit(
            f"expected a ratio of at most {bound:.2f}, a fifth over the {record:.2f} in {RECORD.name}. Find the "
            "process that grew, or raise the record and give the reason."
        )


main()
