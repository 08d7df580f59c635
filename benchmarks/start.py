"""Measure the time of a small job to its first published row: `python benchmarks/start.py [--rounds 5]`.

It runs 100 photos and a small CLIP by `overnight run` with a running Prefect server. In turns with that, it imports
torch and starts Ray, which every program on Ray with a PyTorch model must do. It prints medians. Run it on an otherwise
idle machine.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from peers import environment, prefect
from workloads import WORKLOADS, photos

ROWS = 100
FLOOR = "import torch, ray; ray.init('local', include_dashboard=False, log_to_driver=False); print('there', flush=True)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="overnight-start-") as name, prefect(Path(name)):
        folder = Path(name)
        job = make(folder)
        _job(job, folder)  # once before, so that the files are in the page cache
        floors, published, ended = [], [], []
        for _ in range(rounds):
            floors.append(_floor()[0])
            first, last = _job(job, folder)
            published.append(first)
            ended.append(last)
    print("| | seconds, median | lowest | highest |\n| --- | ---: | ---: | ---: |")
    above = [first - floor for first, floor in zip(published, floors, strict=True)]
    for what, seconds in (
        ("torch imported, Ray started", floors),
        (f"first row of {ROWS} published", published),
        ("difference of these two", above),
        ("`overnight run` ended", ended),
    ):
        print(f"| {what} | {statistics.median(seconds):.1f} | {min(seconds):.1f} | {max(seconds):.1f} |")


def make(folder: Path) -> Path:
    """Write the job file of 100 photos."""
    model = photos(WORKLOADS["photos"], folder, ROWS)["model"]
    job = {
        "name": "start",
        "source": {"kind": "images", "path": str(folder / "images")},
        "preprocess": [{"kind": "resize_image", "size": 224, "decode": "fast"}],
        "inference": [{"kind": "image_embedding", "model": model}],
        "sink": {"kind": "parquet", "path": str(folder / "out")},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder / "job.yaml"


def _floor() -> tuple[float, float]:
    return timed([sys.executable, "-c", FLOOR], lambda process: bool(process.stdout and process.stdout.readline()))


def _job(job: Path, folder: Path) -> tuple[float, float]:
    before = set((folder / "out").glob("*.parquet"))
    command = [sys.executable, "-c", "from overnight.cli.main import main; main(prog_name='overnight')"]
    return timed(
        [*command, "run", str(job), "--force", "--json"],
        lambda _: bool(set((folder / "out").glob("*.parquet")) - before),
    )


def timed(command: list[str], is_there: Callable[[subprocess.Popen[bytes]], bool]) -> tuple[float, float]:
    """Return the seconds until `is_there` is true, and until the command has ended."""
    started = time.monotonic()
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        while not is_there(process):
            if process.poll() is not None and not is_there(process):
                raise SystemExit(f"{' '.join(command[-4:])}: expected a result, found exit status {process.returncode}")
            time.sleep(0.02)
        first = time.monotonic() - started
        process.communicate()
    return first, time.monotonic() - started


if __name__ == "__main__":
    main()
