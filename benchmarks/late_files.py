"""Measure late files: `python benchmarks/late_files.py [--files 20000] [--changed 200] [--folder DIR]`.

It publishes a partition of small photos, changes some of them, and runs again. It prints the rows that the model saw
in both runs, their seconds, and if the result is row by row that of a run from nothing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml
from PIL import Image

MODEL = """
class Measure:
    def __init__(self, log):
        self.log = log

    def __call__(self, batch):
        with open(self.log, "a") as log:
            log.writelines("row\\n" for _ in batch["image"])
        return {"brightness": batch["image"].mean(axis=(1, 2, 3))}
"""


def run(folder: Path, name: str) -> tuple[dict[str, Any], int, float]:
    """Run the job that publishes to the folder `name`: its receipt, the rows that its model saw, and the seconds."""
    model = {"kind": "python", "target": "late_model:Measure", "kwargs": {"log": str(folder / "log")}}
    job = {
        "name": name,
        "source": {"kind": "images", "path": str(folder / "in")},
        "preprocess": [{"kind": "resize_image", "size": 32}],
        "inference": [model],
        "sink": {"kind": "parquet", "path": str(folder / name)},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(job))
    (folder / "log").write_text("")
    start = time.monotonic()
    command = [str(Path(sys.executable).parent / "overnight"), "run", f"{name}.yaml", "--json", "--quiet"]
    output = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True).stdout
    seconds = time.monotonic() - start
    return json.loads(output), (folder / "log").read_text().count("\n"), seconds


def rows_of(receipt: dict[str, Any], sink: Path) -> list[dict[str, Any]]:
    rows = []
    for file in receipt["files"]:
        rows += pq.read_table(sink / file).to_pylist()
    return sorted(rows, key=lambda row: row["row_id"])


def draw_photo(folder: Path, number: int, seed: int) -> None:
    pixels = np.random.default_rng([seed, number]).integers(0, 256, (6, 8, 3), np.uint8)
    Image.fromarray(pixels).resize((96, 72)).save(folder / f"in/{number:06d}.jpg")


def measure(folder: Path, files: int, changed: int) -> None:
    (folder / "in").mkdir(parents=True)
    (folder / "late_model.py").write_text(MODEL)
    for number in range(files):
        draw_photo(folder, number, seed=1)
    _, all_rows, seconds = run(folder, "late")
    print(f"first run             {all_rows:,} rows through the model, {seconds:.1f} s")
    for number in range(0, files, files // changed):
        draw_photo(folder, number, seed=2)
    receipt, rows, seconds = run(folder, "late")
    print(f"after {changed:,} changed files  {rows:,} rows through the model, {seconds:.1f} s: {rows / all_rows:.2%}")
    print(f"continued             {receipt['continued']}")
    whole, _, _ = run(folder, "whole")
    is_equal = rows_of(receipt, folder / "late") == rows_of(whole, folder / "whole")
    print(f"equal to a run from nothing  {is_equal}")
    if not is_equal or rows > 0.015 * all_rows:
        sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--changed", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(options.folder or Path(folder), options.files, options.changed)


if __name__ == "__main__":
    main()
