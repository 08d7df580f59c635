"""Measure how busy a machine keeps its GPU: `python benchmarks/gpu.py`, or `gpu.sh` within nine minutes.

It runs models of real size (`--model`, see gpu_subjects.py) on one GPU, one contender after another:

    the model alone    its input on the device; in `--dtype` and in float32
    decoding alone     for images: plain processes, one per core, that decode as the contender does
    Overnight          in `--dtype`, by `overnight run`
    others             Ray's tutorial, Daft, plain loops, as published: float32, one worker with the GPU

Each contender streams for about 17 s, and has its start before that. The two most important contenders of each model
come first. A contender without enough time is "left out". It prints a Markdown table for each model: rows/s with
start-up, steady rows/s, and the steady rate as a fraction of the smaller limit. It also prints the GPU's utilisation
and memory by NVML, where utilisation is the share of time with a running kernel. Batch size, limit and advice are those
of Overnight's receipt. A run counts only if it has every row once.
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
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from agreement import Judge
from gpu_subjects import SUBJECTS, Run, Subject, make
from measuring import BACKGROUND_SECONDS, Measured, measure
from peers import CONTENDERS, environment, not_run, prefect, say

HEAD = (
    "| | rows/s | steady rows/s | of the smaller limit | GPU busy | GPU memory, GB | batch "
    "| CPU s per 1,000 rows | first output, s |"
)
STREAM_SECONDS, LEAST_SECONDS, END_SECONDS = 17.0, 8.0, 15.0  # of a contender's stream; to end everything
LIMIT_SECONDS = 2.0  # of the model alone, for each batch size
NO_TIME = {"problem": "left out: no time"}
DECODERS = {"fast": "as decode: fast", "exact": "as exact decoding", "others": "as the others"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(SUBJECTS), nargs="+", default=["clip-b-32", "vit-b-16"])
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="bfloat16", help="Overnight's")
    parser.add_argument("--device", default="cuda", help="cpu only tries the script, without GPU figures")
    parser.add_argument("--seconds", type=float, default=530, help="the limit of the whole; default: 530")
    parser.add_argument("--rows", type=int, help="rows per run; default: what a contender may do in 17 s")
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files; default: shared or generated photos")
    parser.add_argument("--json", type=Path, help="a file for every figure")
    options = parser.parse_args()
    options.deadline = time.monotonic() + options.seconds - END_SECONDS
    found: dict[str, Any] = {"device": device_name(options.device), "cores": os.cpu_count() or 1, "decoding": {}}
    found["models"] = {model: {"runs": {}} for model in options.model}
    with tempfile.TemporaryDirectory(prefix="overnight-gpu-") as name, prefect(Path(name)) as options.api:
        options.folder = Path(name)
        try:
            for model, run in in_order(options.model):
                say(f"{model}, {run.label}: {options.deadline - time.monotonic():.0f} s left")
                try:
                    entry = contend(model, run, options, found)
                except Exception as problem:  # the others have their figures
                    entry = {"problem": f"failed: {type(problem).__name__}: {problem}"}
                found["models"][model]["runs"][run.label] = entry
                say(str(entry))
        finally:
            print(*("\n" + table(model, options, found) for model in options.model), sep="\n", flush=True)
            if options.json:
                options.json.write_text(json.dumps(found, indent=2))
    problems = [entry.get("problem", "") for of in found["models"].values() for entry in of["runs"].values()]
    sys.exit(any(problem and not problem.startswith(("left out", "not run")) for problem in problems))


def in_order(models: Sequence[str]) -> list[tuple[str, Run]]:
    """Return the contenders in the order of their importance: the first two of each model, then the others."""
    ranked = [(place, model, run) for model in models for place, run in enumerate(SUBJECTS[model].runs)]
    return [(model, run) for _, model, run in sorted(ranked, key=lambda entry: entry[0] > 1)]


def rows_for(run: Run, rate: float, left_seconds: float) -> int:
    """Return the rows that a contender has time for, or 0 if its start and a short stream do not fit.

    `rate` is the smaller limit, in rows per second.
    """
    stream = min(STREAM_SECONDS, left_seconds - run.start_seconds)
    rows = max(int(rate * run.share * stream), 20)
    return 0 if stream < LEAST_SECONDS else rows - rows % 1000 if rows > 1000 else rows


def contend(model: str, run: Run, options: argparse.Namespace, found: dict[str, Any]) -> dict[str, Any]:
    """Run a contender after what limits it, as far as there is time. Return its figures, or why there are none."""
    if not rows_for(run, 1, options.deadline - time.monotonic()):
        return NO_TIME
    subject, folder, trial = SUBJECTS[model], options.folder / model, options.rows or 800 * found["cores"]
    if "model_only" not in found["models"][model]:
        told = make(subject, folder / f"data-{trial}", trial, found["cores"], options)
        kinds = dict.fromkeys((options.dtype, "float32"))
        rates = {dtype: model_only(subject, told, options.device, dtype) for dtype in kinds}
        found["models"][model]["model_only"] = rates
        say(f"the model alone, rows/s: {rates}")
    if run.decoder and run.decoder not in found["decoding"]:
        decoding = Run("decoding", "images_plain", ("decode", run.decoder))
        figures, _ = measured(decoding, folder / f"data-{trial}", folder / run.decoder, trial, 40)
        rate = None if figures.status else figures.steady_rows_per_second or trial / figures.seconds
        found["decoding"][run.decoder] = rate
        say(f"decoding alone, rows/s, {run.decoder}: {rate or not_run(figures) or f'exit status {figures.status}'}")
    limit = smaller_limit(run, found["models"][model], options, found)
    if not (rows := rows_for(run, limit, options.deadline - time.monotonic())):
        return NO_TIME
    rows = options.rows or rows
    data, out = folder / f"data-{rows}", folder / f"out-{len(found['models'][model]['runs'])}"
    if not data.exists():
        make(subject, data, rows, found["cores"], options)
    left = options.deadline - time.monotonic() - BACKGROUND_SECONDS
    figures, gpu = measured(run, data, out, rows, min(left, 2 * (run.start_seconds + STREAM_SECONDS)))
    entry = outcome(figures, out, rows)
    interval = (figures.steady_from, figures.steady_to)
    if of_overnight(run) and "problem" not in entry:
        receipt = json.loads(next(out.rglob("receipt.json")).read_text())
        ends = (receipt["stages"]["infer"][name] for name in ("started_at", "finished_at"))
        interval = tuple(datetime.fromisoformat(end).timestamp() for end in ends)
        (batch,) = receipt["performance"]["batch_sizes"].values()
        entry |= {"receipt": receipt["performance"], "batch": f"{batch['rows']}, {batch['reason']}"}
        entry["steady"] = entry["receipt"]["rows_per_second_streaming"]
    shutil.rmtree(out, ignore_errors=True)
    return {**entry, "rows": rows, "gpu_busy": gpu.busy_between(*interval), "gpu_gigabytes": gpu.peak_gigabytes()}


def smaller_limit(run: Run, of_model: dict[str, Any], options: argparse.Namespace, found: dict[str, Any]) -> float:
    dtype = options.dtype if of_overnight(run) else "float32"
    return min(of_model["model_only"][dtype], found["decoding"].get(run.decoder) or float("inf"))


def of_overnight(run: Run) -> bool:
    return run.script.endswith("_overnight")


def measured(run: Run, data: Path, out: Path, rows: int, limit_seconds: float) -> tuple[Measured, "GpuWatch"]:
    command = [sys.executable, str(CONTENDERS / f"{run.script}.py"), str(data), str(out), *run.arguments]
    with GpuWatch() as gpu:
        return measure(command, environment(), out, rows, limit_seconds), gpu


def outcome(run: Measured, out: Path, rows: int) -> dict[str, Any]:
    if run.status:
        ended = f"stopped after {run.seconds:.0f} s" if run.status == 124 else f"failed with exit status {run.status}"
        reason = not_run(run) or print(run.error[-3000:], file=sys.stderr)
        return {"problem": f"not run: {reason}" if reason else ended}
    Judge("gpu", out, rows, {}).difference(out, "rows")
    return {
        "rows_per_second": rows / run.seconds,
        "steady": run.steady_rows_per_second,
        "cpu_seconds_per_1000": run.cpu_seconds * 1000 / rows,
        "first_output_seconds": run.first_output_seconds,
    }


def table(model: str, options: argparse.Namespace, found: dict[str, Any]) -> str:
    def text(value: float | None, how: str = ",.0f") -> str:
        return "-" if value is None else format(value, how)

    weights, of_model = "its own weights" if model == "minilm" else "random weights", found["models"][model]
    lines = [f"{model} ({weights}), {found['device']}, {found['cores']} CPU cores\n", HEAD, "| --- |" + " ---: |" * 8]
    runs = {run.label: run for run in SUBJECTS[model].runs}
    limits = {f"limit: the model alone, {dtype}": rate for dtype, rate in of_model.get("model_only", {}).items()}
    if any(run.decoder for run in runs.values()):
        limits |= {f"limit: decoding alone, {DECODERS[name]}": rate for name, rate in found["decoding"].items()}
    lines += [f"| {label} | | {text(rate, ',.1f')} | | | | | | |" for label, rate in limits.items()]
    for label, run in runs.items():
        entry = of_model["runs"].get(label, NO_TIME)
        steady = entry.get("steady")
        cells = [
            entry.get("problem") or text(entry["rows_per_second"], ",.1f"),
            text(steady, ",.1f"),
            text(steady / smaller_limit(run, of_model, options, found) if steady else None, ".2f"),
            text(entry.get("gpu_busy"), ".0%"),
            text(entry.get("gpu_gigabytes"), ".1f"),
            entry.get("batch") or "-",
            text(entry.get("cpu_seconds_per_1000"), ".3g"),
            text(entry.get("first_output_seconds"), ".1f"),
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    bounds = {label: entry["receipt"] for label, entry in of_model["runs"].items() if "receipt" in entry}
    lines += [f"\n{label}, by its receipt: {json.dumps(bound)}" for label, bound in bounds.items()]
    return "\n".join(lines)


def model_only(subject: Subject, told: dict[str, Any], device: str, dtype: str) -> float:
    """Return the rows per second of the better of two batch sizes."""
    import torch

    call, best = subject.alone(told, device, dtype), 0.0
    for size in subject.batches if device != "cpu" else (16,):
        with torch.inference_mode():
            for _ in range(3):  # the first calls choose kernels
                call(size)
            calls, began = 0, time.perf_counter()
            while time.perf_counter() - began < LIMIT_SECONDS:
                call(size)
                calls += 1
        best = max(best, size * calls / (time.perf_counter() - began))
    del call
    if device != "cpu":
        torch.cuda.empty_cache()
    return best


def device_name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else f"{device}, no GPU: a trial of the script"


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
