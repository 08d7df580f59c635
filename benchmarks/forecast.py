"""Measure how often a run ends within its forecast: `python benchmarks/forecast.py FOLDER [--runs 60]`.

Each run embeds a drawn number of drawn JPEG files with a small CLIP model of random weights, as one partition of one
job. Before it, `run_seconds` forecasts its seconds from the receipts of the runs before. During it, the log without a
terminal has the time left every ten seconds. Both count as right if the run ends within the interval of 80 %. The
first three runs have too few receipts and do not count. `--receipts` counts the whole-run forecasts of receipts alone.
"""

import argparse
import json
import math
import random
import re
import subprocess
import sys
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml

from overnight.flows.ledger.forecast import experience, run_seconds

LEAST, MOST = 200, 6000  # files of a partition, drawn evenly on a logarithmic scale
WARM_UP = 3
FIRST_DAY = date(2026, 1, 1)
LEFT = re.compile(r"left \(80 %: (?P<low>.+?)(?: to (?P<high>.+?))?\)")
UNIT_SECONDS = {"s": 1, "min": 60, "h": 3600}


def make_job(folder: Path, seed: int) -> Path:
    """Write the model and the job to the folder, unless they are there. Return the path of the job."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

    path = folder / "job.yaml"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    shape = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    vision = {**shape, "image_size": 224, "patch_size": 32}
    CLIPModel(CLIPConfig(text_config=shape, vision_config=vision, projection_dim=64)).save_pretrained(folder / "clip")
    CLIPImageProcessorPil().save_pretrained(folder / "clip")
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
    from PIL import Image

    pictures = folder.parent / "_pictures"
    if not pictures.exists():
        pictures.mkdir(parents=True)
        pixels = np.random.default_rng(0)
        for number in range(50):
            coarse = Image.fromarray(pixels.integers(0, 256, (12, 16, 3), np.uint8))
            coarse.resize((640, 480), Image.Resampling.BICUBIC).save(pictures / f"{number}.jpg", quality=90)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number:06d}.jpg").hardlink_to(pictures / f"{chance.randrange(50)}.jpg")


def seconds_of(text: str) -> float:
    """Return the seconds of a text such as `3 min 20 s`."""
    words = text.split()
    return sum(float(number) * UNIT_SECONDS[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


def intervals(log: str) -> list[tuple[float, float, float]]:
    """Return from each line of a log with a time left: the seconds since the start, and its interval."""
    lines = []
    for line in log.splitlines():
        if match := LEFT.search(line):
            low = seconds_of(match["low"])
            lines.append((float(line.split()[0]), low, seconds_of(match["high"]) if match["high"] else low))
    return lines


def is_within(seconds: float, low: float, high: float) -> bool:
    """Return whether the seconds are within an interval whose bounds were rounded to seconds."""
    return low - 0.5 <= seconds <= high + 0.5


def measure(job: Path, runs: int, seed: int) -> list[dict[str, Any]]:
    """Run the job for drawn partitions, and return the forecasts and the seconds of each."""
    chance, results, receipts = random.Random(seed), list[dict[str, Any]](), list[dict[str, Any]]()
    for number in range(runs):
        rows = round(math.exp(chance.uniform(math.log(LEAST), math.log(MOST))))
        day = (FIRST_DAY + timedelta(days=number)).isoformat()
        make_images(job.parent / f"images/date={day}", rows, chance)
        forecast = run_seconds(experience(receipts), rows)
        overnight = str(Path(sys.executable).with_name("overnight"))
        command = [overnight, "run", str(job), "--partition", day, "--force", "--json"]
        start = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds = time.monotonic() - start
        receipt = json.loads(done.stdout)
        receipts.append(receipt)
        left = [is_within(seconds - at, low, high) for at, low, high in intervals(done.stderr)]
        result = {"rows": rows, "seconds": receipt["seconds"], "left": left, "within": None}
        if forecast and number >= WARM_UP:
            result["within"] = forecast.low <= receipt["seconds"] <= forecast.high
        print(json.dumps(result), flush=True)
        results.append(result)
    return results


def replay(paths: list[Path]) -> list[dict[str, Any]]:
    """Return the forecast of each receipt from those before it."""
    receipts = sorted((json.loads(path.read_text()) for path in paths), key=lambda receipt: receipt["finished_at"])
    results: list[dict[str, Any]] = []
    for number, receipt in enumerate(receipts):
        forecast = run_seconds(experience(receipts[:number]), receipt["rows_in"])
        if forecast and number >= WARM_UP:
            within = forecast.low <= receipt["seconds"] <= forecast.high
            results.append({"rows": receipt["rows_in"], "seconds": receipt["seconds"], "left": [], "within": within})
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
    parser.add_argument("--receipts", action="store_true", help="read the receipts below the folder, and run nothing")
    options = parser.parse_args()
    if options.receipts:
        results = replay(sorted(options.folder.rglob("receipt.json")))
    else:
        results = measure(make_job(options.folder, options.seed), options.runs, options.seed)
    print(summarize(results))


if __name__ == "__main__":
    main()
