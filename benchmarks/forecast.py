"""Measure how often a run ends within its forecast: `python benchmarks/forecast.py FOLDER [--runs 60]`.

A backfill embeds a drawn number of drawn JPEG files a day with a small CLIP model of random weights. The receipts of
the days before forecast each day's seconds, as `backfill --dry-run` does. The lines of the backfill without a terminal
have the time that is left of a run every ten seconds. Both are right if the run ends within the interval of 80 %. The
first three runs have too few receipts and do not count. `--receipts` reads those of an earlier call.
"""

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from made_photos import write_clip, write_photo

from overnight.flows.ledger.forecast import experience, run_seconds

LEAST, MOST = 50, 500  # files of a partition, drawn evenly on a logarithmic scale
WARM_UP = 3
FIRST_DAY = date(2026, 1, 1)
LEFT = re.compile(r"left \(80 %: (?P<low>.+?)(?: to (?P<high>.+?))?\)")
UNIT_SECONDS = {"s": 1, "min": 60, "h": 3600}


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


def seconds_of(text: str) -> float:
    """Return the seconds of a text such as `3 min 20 s`."""
    words = text.split()
    return sum(float(number) * UNIT_SECONDS[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


@dataclass(frozen=True)
class Line:
    """The time left that a line showed at `moment`, in seconds since the epoch, and its interval in seconds."""

    moment: float
    low: float
    high: float

    def is_right(self, end: float) -> bool:
        """Return whether a run that ended at `end` did so within the interval, whose bounds are whole seconds."""
        return self.low - 0.5 <= end - self.moment <= self.high + 0.5


def lines_of(log: Path) -> list[Line]:
    """Return the lines of a backfill that have a time left. The log begins with the time at which it started."""
    start, *texts = log.read_text().splitlines()
    lines = []
    for line in texts:
        if match := LEFT.search(line):
            low = seconds_of(match["low"])
            high = seconds_of(match["high"]) if match["high"] else low
            lines.append(Line(float(start) + float(line.split()[0]), low, high))
    return lines


def measure(job: Path, runs: int, seed: int) -> None:
    """Run a backfill of partitions with drawn numbers of rows. Its lines go to the file backfill.log."""
    chance = random.Random(seed)
    days = [(FIRST_DAY + timedelta(days=number)).isoformat() for number in range(runs)]
    for day in days:
        rows = round(math.exp(chance.uniform(math.log(LEAST), math.log(MOST))))
        make_images(job.parent / f"images/date={day}", rows, chance)
    overnight = str(Path(sys.executable).with_name("overnight"))
    command = [overnight, "backfill", str(job), "--start", days[0], "--end", days[-1], "--json"]
    environment = {**os.environ, "PREFECT_HOME": str(job.parent / "prefect")}
    with (job.parent / "backfill.log").open("w") as log:
        print(time.time(), file=log, flush=True)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=log, check=True, env=environment)


def results_of(receipts: list[dict[str, Any]], lines: list[Line]) -> list[dict[str, Any]]:
    """Return of each run whether the receipts before it forecast its seconds, and which of its lines were right."""
    results: list[dict[str, Any]] = []
    for number, receipt in enumerate(receipts):
        start, end = (datetime.fromisoformat(receipt[name]).timestamp() for name in ("started_at", "finished_at"))
        is_right = [line.is_right(end) for line in lines if start < line.moment < end]
        forecast = run_seconds(experience(receipts[:number], receipt["fingerprint"]), receipt["rows_in"])
        result = {"rows": receipt["rows_in"], "seconds": receipt["seconds"], "left": is_right, "within": None}
        if forecast and number >= WARM_UP:
            result |= {"low": round(forecast.low, 1), "high": round(forecast.high, 1)}
            result["within"] = forecast.low <= receipt["seconds"] <= forecast.high
        results.append(result)
    return results


def summarize(results: list[dict[str, Any]]) -> str:
    """Return the shares of right forecasts as a sentence."""
    whole = [result["within"] for result in results if result["within"] is not None]
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
    parser.add_argument("--receipts", action="store_true", help="read the receipts and the log, and run nothing")
    options = parser.parse_args()
    if not options.receipts:
        measure(make_job(options.folder, options.seed), options.runs, options.seed)
    paths = options.folder.glob("**/date=*/receipt.json")
    receipts = sorted((json.loads(path.read_text()) for path in paths), key=lambda receipt: str(receipt["finished_at"]))
    results = results_of(receipts, lines_of(options.folder / "backfill.log"))
    for result in results:
        print(json.dumps(result))
    print(summarize(results))


if __name__ == "__main__":
    main()
