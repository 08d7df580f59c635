"""Measure how soon `overnight preview` has its rows: `python benchmarks/preview.py [--pairs 5]`.

It previews eight digits of the demo's job, in turns with a process that only imports torch and transformers. The
preview imports both too, and has no model, so that its seconds are those of the command without the model's own work.
On a busy machine the CPU seconds are the better figures.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "demo"))

from make_data import PARTITIONS, make_digits  # noqa: E402 - in the folder of the demo

IMPORTS = "import torch, transformers"
PREVIEW = f"{IMPORTS}\nfrom overnight.cli.main import main\nmain(prog_name='overnight')"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory(prefix="overnight-preview-") as name:
        folder = Path(name)
        make_digits(folder)
        job = [str(ROOT / "deployments/jobs/digits.yaml"), "--partition", PARTITIONS[-1], "--set", "inference=[]"]
        environment = {**os.environ, "OVERNIGHT_DEMO": name, "HF_HUB_OFFLINE": "1"}
        measure([PREVIEW, "preview", *job], environment)  # once before, so that the files are in the page cache
        print("| | imports, s | preview, s | ratio | imports, CPU s | preview, CPU s | ratio |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        found = []
        for number in range(pairs):
            imports, preview = measure([IMPORTS], environment), measure([PREVIEW, "preview", *job], environment)
            found.append((*(figure for pair in zip(imports, preview, strict=True) for figure in with_ratio(*pair)),))
            line(f"pair {number + 1}", found[-1])
        line("median", tuple(map(statistics.median, zip(*found, strict=True))))


def measure(program: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a program."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", *program], env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - started, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def with_ratio(imports: float, preview: float) -> tuple[float, float, float]:
    """Return both figures and their ratio."""
    return imports, preview, preview / imports


def line(title: str, figures: tuple[float, ...]) -> None:
    """Print a line of the table."""
    print(f"| {title} | {' | '.join(f'{figure:.2f}' for figure in figures)} |", flush=True)


if __name__ == "__main__":
    main()
