"""Measure how busy a machine keeps its GPU: `python benchmarks/gpu.py`, or `gpu.sh` on a machine without Ray.

It runs a model of real size (`--model`, see gpu_subjects.py) on one GPU, one contender after another:

    the model alone    its input on the device; in `--dtype` and in float32
    decoding alone     for images: plain processes, one per core
    Overnight          in `--dtype`, by `overnight run`
    others             Ray's tutorial, Daft, plain loops, as published: float32, one worker with the GPU

It prints a Markdown table: rows/s with start-up, steady rows/s, and the steady rate as a fraction of the smaller limit.
The limits are the model alone in the same number type, and decoding alone. It also prints the GPU's utilisation and
memory by NVML, where utilisation is the share of time with a running kernel, and the batch size of Overnight's plan. A
run counts only if it has every row once. The number of rows follows from the limits, so that everything ends within
`--seconds`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import overnight_progress
from agreement import Disagreement, Judge
from gpu_subjects import SUBJECTS, Run, Subject, make
from measuring import Measured, measure
from peers import CONTENDERS, environment, not_run, prefect, say

HEAD = (
    "| | rows/s | steady rows/s | of the smaller limit | GPU busy | GPU memory, GB | batch "
    "| CPU s per 1,000 rows | first output, s |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(SUBJECTS), default="vit-b-16")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="bfloat16", help="Overnight's")
    parser.add_argument("--device", default="cuda", help="cpu only tries the script, without GPU figures")
    parser.add_argument("--seconds", type=float, default=500, help="the limit of the whole; default: 500")
    parser.add_argument("--rows", type=int, help="rows per run; default: what the limits do in a quarter of the time")
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files; default: shared or generated photos")
    parser.add_argument("--json", type=Path, help="a file for every figure")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="overnight-gpu-") as name, prefect(Path(name)) as api:
        found = run_all(SUBJECTS[options.model], options, Path(name), api, deadline)
    print("\n" + table(options, found), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))
    sys.exit(1 if any(entry.get("problem") for entry in found["runs"].values()) else 0)


def run_all(subject: Subject, options: argparse.Namespace, folder: Path, api: str, deadline: float) -> dict[str, Any]:
    cpus = os.cpu_count() or 1
    found: dict[str, Any] = {"device": device_name(options.device), "cores": cpus, "runs": {}}
    trial = options.rows or 200 * cpus
    told = make(subject, folder / "trial", trial, cpus, options)
    found["model_only"] = {
        dtype: model_only(subject, told, options.device, dtype, 0.02 * options.seconds)
        for dtype in dict.fromkeys((options.dtype, "float32"))
    }
    say(f"the model alone, rows/s: {found['model_only']}")
    smaller = found["model_only"][options.dtype]
    if subject.decodes:
        run = measured(subject.decodes, folder / "trial", folder / "decode", trial, 60)[0]
        found["decode_only"] = run.steady_rows_per_second or trial / run.seconds
        say(f"decoding alone: {found['decode_only']:,.0f} rows/s on {cpus} cores")
        smaller = min(smaller, found["decode_only"])

    rows = options.rows or int(smaller * 0.22 * options.seconds)
    say(f"{rows:,} rows, {deadline - time.monotonic():.0f} s left")
    for number, run in enumerate(subject.runs):
        left = deadline - time.monotonic() - 10
        if left < 30:
            found["runs"][run.label] = {"problem": "not run: no time was left"}
            continue
        count = options.rows or max(int(rows * run.share), 500)
        data, out = folder / f"data-{count}", folder / str(number)
        if not data.exists():
            make(subject, data, count, cpus, options)
        limit = left / (len(subject.runs) - number) * (1.5 if number < len(subject.runs) - 1 else 1)
        follow = partial(overnight_progress.follow, api, subject.job, count) if of_overnight(run) else None
        figures, gpu = measured(run, data, out, count, min(left, limit), follow)
        batch = planned_batch(api, subject.job) if of_overnight(run) and not figures.status else None
        found["runs"][run.label] = {**outcome(figures, out, count), **gpu, "batch": batch}
        say(f"{run.label}: {found['runs'][run.label]}")
        shutil.rmtree(out, ignore_errors=True)
    return found


def of_overnight(run: Run) -> bool:
    return run.script.endswith("_overnight")


def measured(
    run: Run,
    data: Path,
    out: Path,
    rows: int,
    limit_seconds: float,
    follow: Callable[[Path, threading.Event], None] | None = None,
) -> tuple[Measured, dict[str, float | None]]:
    """Run a contender. Return its figures, and the GPU's: the share of its steady time that it was busy, and GB."""
    command = [sys.executable, str(CONTENDERS / f"{run.script}.py"), str(data), str(out), *run.arguments]
    with GpuWatch() as gpu:
        figures = measure(command, environment(), out, rows, limit_seconds, follow)
    busy = gpu.busy_between(figures.steady_from, figures.steady_to)
    return figures, {"gpu_busy": busy, "gpu_gigabytes": gpu.peak_gigabytes()}


def outcome(run: Measured, out: Path, rows: int) -> dict[str, Any]:
    if run.status:
        reason = not_run(run)
        if not reason and run.status != 124:
            print(run.error[-3000:], file=sys.stderr)
        ended = "stopped: no time was left" if run.status == 124 else f"failed with exit status {run.status}"
        steady = run.steady_rows_per_second if run.status == 124 else None
        return {"problem": f"not run: {reason}" if reason else ended, "steady": steady}
    try:
        Judge("gpu", out, rows, {}).difference(out, "rows")
    except Disagreement as problem:
        return {"problem": f"wrong: {problem}"}
    return {
        "rows_per_second": rows / run.seconds,
        "steady": run.steady_rows_per_second,
        "cpu_seconds_per_1000": run.cpu_seconds * 1000 / rows,
        "first_output_seconds": run.first_output_seconds,
        "peak_megabytes": run.peak_bytes / 1e6,
    }


def table(options: argparse.Namespace, found: dict[str, Any]) -> str:
    def text(value: float | None, how: str = ",.0f") -> str:
        return "-" if value is None else format(value, how)

    weights = "its own weights" if options.model == "minilm" else "random weights"
    lines = [
        f"{options.model} ({weights}), {found['device']}, {found['cores']} CPU cores\n",
        HEAD,
        "| --- |" + " ---: |" * 8,
    ]
    limits = {f"limit: the model alone, {dtype}": rate for dtype, rate in found["model_only"].items()}
    if "decode_only" in found:
        limits["limit: decoding alone"] = found["decode_only"]
    lines += [f"| {label} | | {text(rate, ',.1f')} | | | | | | |" for label, rate in limits.items()]
    for label, entry in found["runs"].items():
        dtype = options.dtype if label.startswith("Overnight") else "float32"
        limit = min(found.get("decode_only", float("inf")), found["model_only"][dtype])
        steady = entry.get("steady")
        cells = [
            entry.get("problem") or text(entry["rows_per_second"], ",.1f"),
            text(steady, ",.1f"),
            text(steady / limit if steady else None, ".2f"),
            text(entry.get("gpu_busy"), ".0%"),
            text(entry.get("gpu_gigabytes"), ".1f"),
            entry.get("batch") or "-",
            text(entry.get("cpu_seconds_per_1000"), ".3g"),
            text(entry.get("first_output_seconds"), ".1f"),
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def model_only(subject: Subject, told: dict[str, Any], device: str, dtype: str, seconds: float) -> float:
    """Return the rows per second of the better of two batch sizes."""
    import torch

    call, best = subject.alone(told, device, dtype), 0.0
    for size in subject.batches if device != "cpu" else (16,):
        with torch.inference_mode():
            done, began = 0, 0.0
            for turn in range(10**6):
                if turn == 3:  # the first calls choose kernels
                    done, began = 0, time.perf_counter()
                call(size)
                done += size
                if turn > 5 and time.perf_counter() - began > seconds / 2:
                    break
        best = max(best, done / (time.perf_counter() - began))
    del call
    if device != "cpu":
        torch.cuda.empty_cache()
    return best


def device_name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else f"{device}, no GPU: a trial of the script"


def planned_batch(api: str, job: str) -> str | None:
    """Return the batch size in the plan of the job's last run, such as `64, found on the sample`."""
    found = overnight_progress.artifact(api, f"{job}-plan")
    told = re.search(r"batch size \|([^|]+)\|", found["data"]) if found else None
    return told[1].strip() if told else None


class GpuWatch:
    """Samples the first GPU's utilisation and memory five times per second while the body runs, by nvidia-smi."""

    def __enter__(self) -> "GpuWatch":
        self._samples: list[tuple[float, float, float]] = []
        self._process = None
        if shutil.which("nvidia-smi"):
            asked = [
                "--id=0",
                "--query-gpu=utilization.gpu,memory.used",
                "--format=csv,noheader,nounits",
                "-lms",
                "200",
            ]
            self._process = subprocess.Popen(["nvidia-smi", *asked], stdout=subprocess.PIPE, text=True)
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        return self

    def _read(self) -> None:
        for line in self._process.stdout:
            if found := re.fullmatch(r"(\d+), (\d+)", line.strip()):
                self._samples.append((time.time(), int(found[1]) / 100, int(found[2]) * 2**20 / 1e9))

    def __exit__(self, *error: object) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait()

    def busy_between(self, start: float | None, end: float | None) -> float | None:
        """Return the mean utilisation between two times, or None without samples."""
        inside = [busy for when, busy, _ in self._samples if start and end and start <= when <= end]
        return sum(inside) / len(inside) if inside else None

    def peak_gigabytes(self) -> float | None:
        """Return the most memory in use, that of other processes included, or None without samples."""
        return max((used for _, _, used in self._samples), default=None)


if __name__ == "__main__":
    main()
