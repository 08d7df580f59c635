"""Measure how often a run ends within its forecast: `python benchmarks/forecast.py FOLDER [--runs 60]`.

A backfill embeds a drawn number of drawn JPEG files a day with a small CLIP model of random weights. The receipts of
the days before forecast each day's seconds, as `backfill --dry-run` does. With the rows that a receipt has for about
each second of its stream, they also forecast the time that was left. Both are right if the run ends within the interval
of 80 %. The first three runs have too few receipts and do not count. `--receipts` reads those of an earlier call.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from made_photos import write_clip, write_photo

from overnight.flows.ledger.forecast import Experience, Pace, experience, run_seconds, time_left

LEAST, MOST = 50, 500  # files of a partition, drawn evenly on a logarithmic scale
WARM_UP = 3
FIRST_DAY = date(2026, 1, 1)


def make_job(folder: Path, seed: int) -> Path:
    """Write the model and the job to the folder, unless they are there. Return the path of the job."""
    path = folder / "job.yaml"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    write_clip(folder / "clip", width=64, layers=2, seed=seed)
    job = {
        "name": "forecast",
        "source": {"kind": "images", "path": str(folder / "images/date={partition}")},
        "preprocess": [{"kind": "resize_image", "size": 224}],
        "inference": [{"kind": "image_embedding", "model": str(folder / "clip")}],
        "sink": {"kind": "parquet", "path": str(folder / "out")},
    }
    path.write_text(yaml.safe_dump(job))
    return path


def make_images(folder: Path, count: int, chance: random.Random) -> None:
    """Write `count` JPEG files to the folder. They are links to 50 drawn pictures."""
    import numpy as np

    pictures = folder.parent / "_pictures"
    if not pictures.exists():
        pictures.mkdir(parents=True)
        pixels = np.random.default_rng(0)
        for number in range(50):
            write_photo(pictures / f"{number}.jpg", pixels)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number:06d}.jpg").hardlink_to(pictures / f"{chance.randrange(50)}.jpg")


def measure(job: Path, runs: int, seed: int) -> None:
    """Run a backfill of partitions with drawn numbers of rows."""
    chance = random.Random(seed)
    days = [(FIRST_DAY + timedelta(days=number)).isoformat() for number in range(runs)]
    for day in days:
        rows = round(math.exp(chance.uniform(math.log(LEAST), math.log(MOST))))
        make_images(job.parent / f"images/date={day}", rows, chance)
    overnight = str(Path(sys.executable).with_name("overnight"))
    command = [overnight, "backfill", str(job), "--start", days[0], "--end", days[-1], "--json"]
    environment = {**os.environ, "PREFECT_HOME": str(job.parent / "prefect")}
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)


def results_of(receipts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return of each run whether the receipts before it forecast its seconds, and the time left at each sample."""
    results: list[dict[str, Any]] = []
    for number, receipt in enumerate(receipts[WARM_UP:], WARM_UP):
        earlier = experience(receipts[:number], receipt["fingerprint"])
        if forecast := run_seconds(earlier, receipt["rows_in"]):
            result = {"rows": receipt["rows_in"], "seconds": receipt["seconds"]}
            result |= {"low": round(forecast.low, 1), "high": round(forecast.high, 1)}
            result["within"] = bool(forecast.low <= receipt["seconds"] <= forecast.high)
            results.append(result | {"left": list(times_left(earlier, receipt))})
    return results


def times_left(earlier: Experience, receipt: dict[str, Any]) -> Iterator[bool]:
    """Yield whether the time left was right, for each sample of the stream."""
    samples = receipt.get("samples") or {"seconds": []}
    moments: list[tuple[float, int]] = []
    for seconds, rows in zip(samples["seconds"], samples.get("rows_infer", ()), strict=False):
        before = datetime.fromisoformat(samples["started_at"]) - datetime.fromisoformat(receipt["started_at"])
        moments.append((before.total_seconds() + seconds, rows))
        if left := time_left(earlier, Pace(moments, receipt["rows_in"])):
            yield bool(left.low <= receipt["seconds"] - moments[-1][0] <= left.high)


def summarize(results: list[dict[str, Any]]) -> str:
    """Return the shares of right forecasts as a sentence."""
    whole = [result["within"] for result in results]
    left = [is_right for result in results for is_right in result["left"]]
    parts = []
    for name, values in (("runs ended within their forecast", whole), ("times left were right", left)):
        if values:
            parts.append(f"{sum(values)} of {len(values)} {name} ({sum(values) / len(values):.0%})")
    return "; ".join(parts) or "too few runs"


def main() -> None:
    """Measure, or read receipts, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--receipts", action="store_true", help="read the receipts, and run nothing")
    options = parser.parse_args()
    if not options.receipts:
        measure(make_job(options.folder, options.seed), options.runs, options.seed)
    paths = options.folder.glob("**/date=*/receipt.json")
    receipts = sorted((json.loads(path.read_text()) for path in paths), key=lambda receipt: str(receipt["finished_at"]))
    results = results_of(receipts)
    for result in results:
        print(json.dumps(result))
    print(summarize(results))


if __name__ == "__main__":
    main()
