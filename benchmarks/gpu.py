"""Measure how busy the host's CPUs keep one GPU: `python benchmarks/gpu.py`, or `gpu.sh` on a machine without Ray.

It runs photos through a vision model of real size (random weights) on one GPU, one contender after another:

    the model alone    on uint8 batches on the device, normalised there; float32, float16 and bfloat16
    decoding alone     plain processes, one per core
    Overnight          decode: fast and exact decoding, bfloat16 (`--dtype`), by `overnight run`
    the tutorial       Ray's own, as published: float32, one actor with the GPU

It prints a Markdown table: rows/s with start-up, steady rows/s, and the steady rate as a fraction of the smaller limit.
The limits are the model alone in the same number type, and decoding alone. It also prints the GPU's utilisation by
NVML, which is the share of time with a running kernel. A run counts only if it has every row once. The number of rows
follows from the limits, so that everything ends within `--seconds`.
"""

import argparse
import json
import os
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
import workloads
from agreement import Disagreement, Judge
from measuring import Measured, measure
from peers import CONTENDERS, environment, not_run, prefect, say

MODELS = {"vit-b-16": ("real", 16), "clip-b-32": ("real", 32), "tiny": ("tiny", 32)}
BATCHES = (64, 256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="vit-b-16")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="bfloat16", help="Overnight's")
    parser.add_argument("--device", default="cuda", help="cpu only tries the script, without GPU figures")
    parser.add_argument("--seconds", type=float, default=500, help="the limit of the whole; default: 500")
    parser.add_argument("--rows", type=int, help="rows per run; default: what the limits do in a quarter of the time")
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files; default: shared or generated photos")
    parser.add_argument("--json", type=Path, help="a file for every figure")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="overnight-gpu-") as name, prefect(Path(name)) as api:
        found = run_all(options, Path(name), api, deadline)
    print("\n" + table(options, found), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))
    sys.exit(1 if any(entry.get("problem") for entry in found["runs"].values()) else 0)


def run_all(options: argparse.Namespace, folder: Path, api: str, deadline: float) -> dict[str, Any]:
    found: dict[str, Any] = {"device": device_name(options.device), "cores": os.cpu_count(), "runs": {}}
    model = make_model(options.model, folder / "model")
    found["model_only"] = {
        dtype: model_only(model, options.device, dtype, 0.02 * options.seconds)
        for dtype in dict.fromkeys((options.dtype, "float32"))
    }
    say(f"the model alone, rows/s: {found['model_only']}")
    photos = options.photos or next(
        (place for place in (workloads.SHARED / "photos", Path("shared/data/photos")) if place.is_dir()), None
    )
    files = sorted(photos.glob("*.jp*g")) if photos else made_photos(folder / "made")
    trial = 200 * (os.cpu_count() or 1)
    data = make_data(folder / "trial", files, options.rows or trial, model, options)
    run = measured("images_plain", ("decode",), data, folder / "decode", options.rows or trial, 60)[0]
    found["decode_only"] = run.steady_rows_per_second or (options.rows or trial) / run.seconds
    say(f"decoding alone: {found['decode_only']:,.0f} rows/s on {os.cpu_count()} cores")

    smaller = min(found["decode_only"], found["model_only"][options.dtype])
    rows = options.rows or int(smaller * 0.22 * options.seconds)
    rest = deadline - time.monotonic()
    data = make_data(folder / "data", files, rows, model, options)
    say(f"{rows:,} photos, {rest:.0f} s left")
    fewer = options.rows or max(rows // 8, 500)  # the tutorial's rate is about an eighth of the others'
    few = make_data(folder / "few", files, fewer, model, options)
    runs: list[tuple[str, str, tuple[str, ...], Path, int]] = [
        ("Overnight, decode: fast", "images_overnight", ("fast",), data, rows),
        ("Overnight, exact decoding", "images_overnight", (), data, rows),
        ("Ray's tutorial as published", "images_ray_tutorial", (), few, fewer),
    ]
    for number, (label, script, arguments, place, count) in enumerate(runs):
        left = deadline - time.monotonic() - 10
        if left < 30:
            found["runs"][label] = {"problem": "not run: no time was left"}
            continue
        follow = None
        if script == "images_overnight":
            follow = partial(overnight_progress.follow, api, "benchmark-images", count)
        limit = left / (len(runs) - number) * (1.5 if number < len(runs) - 1 else 1)
        run, busy = measured(script, arguments, place, folder / str(number), count, min(left, limit), follow)
        found["runs"][label] = outcome(run, busy, folder / str(number), count)
        say(f"{label}: {found['runs'][label]}")
        shutil.rmtree(folder / str(number), ignore_errors=True)
    return found


def measured(
    script: str,
    arguments: tuple[str, ...],
    data: Path,
    out: Path,
    rows: int,
    limit_seconds: float,
    follow: Callable[[Path, threading.Event], None] | None = None,
) -> tuple[Measured, float | None]:
    """Run a contender, and return the run and the share of its steady time in which the GPU was busy."""
    command = [sys.executable, str(CONTENDERS / f"{script}.py"), str(data), str(out), *arguments]
    with GpuBusy() as gpu:
        run = measure(command, environment(), out, rows, limit_seconds, follow)
    return run, gpu.between(run.steady_from, run.steady_to)


def outcome(run: Measured, busy: float | None, out: Path, rows: int) -> dict[str, Any]:
    if run.status:
        reason = not_run(run)
        if not reason and run.status != 124:
            print(run.error[-3000:], file=sys.stderr)
        ended = "stopped: no time was left" if run.status == 124 else f"failed with exit status {run.status}"
        steady = run.steady_rows_per_second if run.status == 124 else None
        return {"problem": f"not run: {reason}" if reason else ended, "steady": steady, "gpu_busy": busy}
    try:
        Judge("gpu", out, rows, {}).difference(out, "rows")
    except Disagreement as problem:
        return {"problem": f"wrong: {problem}"}
    return {
        "rows_per_second": rows / run.seconds,
        "steady": run.steady_rows_per_second,
        "gpu_busy": busy,
        "cpu_seconds_per_1000": run.cpu_seconds * 1000 / rows,
        "first_output_seconds": run.first_output_seconds,
        "peak_megabytes": run.peak_bytes / 1e6,
    }


def table(options: argparse.Namespace, found: dict[str, Any]) -> str:
    def text(value: float | None, how: str = ",.0f") -> str:
        return "-" if value is None else format(value, how)

    lines = [
        f"{options.model} (random weights), {found['device']}, {found['cores']} CPU cores\n",
        "| | rows/s | steady rows/s | of the smaller limit | GPU busy | CPU s per 1,000 rows | first output, s |",
        "| --- |" + " ---: |" * 6,
    ]
    for dtype, rate in found["model_only"].items():
        lines.append(f"| limit: the model alone, {dtype} | | {text(rate)} | | | | |")
    lines.append(f"| limit: decoding alone | | {text(found['decode_only'])} | | | | |")
    for label, entry in found["runs"].items():
        dtype = options.dtype if label.startswith("Overnight") else "float32"
        limit = min(found["decode_only"], found["model_only"][dtype])
        steady = entry.get("steady")
        share = text(steady / limit if steady else None, ".2f")
        cells = [text(steady), share, text(entry.get("gpu_busy"), ".0%")]
        cells += [text(entry.get("cpu_seconds_per_1000"), ".3g"), text(entry.get("first_output_seconds"), ".1f")]
        lines.append(
            f"| {label} | {entry.get('problem') or text(entry['rows_per_second'])} | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


def make_model(name: str, folder: Path) -> Path:
    shape, patch = MODELS[name]
    workloads.vision_model(folder, workloads.VISION[shape], 224, patch)
    return folder


def make_data(folder: Path, files: list[Path], rows: int, model: Path, options: argparse.Namespace) -> Path:
    """Write the folder that the contenders read, and return it."""
    folder.mkdir()
    workloads.link(files, folder / "images", rows)
    gpus = 0 if options.device == "cpu" else 1
    told = {
        "rows": rows,
        "cpus": os.cpu_count(),
        "images": str(folder / "images"),
        "size": 224,
        "model": str(model),
        "device": options.device,
        "gpus": gpus,
        "overnight_model": {"num_gpus": gpus, "dtype": options.dtype},
    }
    (folder / "settings.json").write_text(json.dumps(told))
    return folder


def model_only(folder: Path, device: str, dtype: str, seconds: float) -> float:
    """Return the images per second of the better of two batch sizes.

    The input is uint8 on the device; the output is embeddings on the host.
    """
    import torch
    from transformers import CLIPVisionModelWithProjection

    number = getattr(torch, dtype)
    model = CLIPVisionModelWithProjection.from_pretrained(folder, dtype=number).eval().to(device)
    best = 0.0
    for size in BATCHES if device != "cpu" else (16,):
        images = torch.randint(0, 256, (size, 3, 224, 224), dtype=torch.uint8, device=device)
        with torch.inference_mode():
            done, began = 0, 0.0
            for turn in range(10**6):
                if turn == 3:  # the first calls choose kernels
                    done, began = 0, time.perf_counter()
                model(pixel_values=images.to(number).sub_(116).div_(68)).image_embeds.float().cpu()
                done += size
                if turn > 5 and time.perf_counter() - began > seconds / 2:
                    break
        best = max(best, done / (time.perf_counter() - began))
    del model
    if device != "cpu":
        torch.cuda.empty_cache()
    return best


def device_name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else f"{device}, no GPU: a trial of the script"


def made_photos(folder: Path) -> list[Path]:
    """Write 60 JPEG files of 500 x 375 with structure at every scale, in the place of real photos."""
    import numpy as np
    from PIL import Image

    folder.mkdir()
    random, files = np.random.default_rng(0), []
    for number in range(60):
        pixels = np.zeros((375, 500, 3))
        for scale in (4, 16, 64, 250):
            noise = random.integers(0, 255, (scale, scale * 4 // 3, 3), dtype=np.uint8)
            pixels += np.asarray(Image.fromarray(noise).resize((500, 375), Image.Resampling.BICUBIC), float) / 4
        files.append(folder / f"made-{number:02d}.jpg")
        Image.fromarray(pixels.astype(np.uint8)).save(files[-1], quality=90)
    return files


class GpuBusy:
    """Samples the first GPU's utilisation five times per second while the body runs. It needs nvidia-smi."""

    def __enter__(self) -> "GpuBusy":
        self._samples: list[tuple[float, float]] = []
        command = [
            "nvidia-smi",
            "--id=0",
            "--query-gpu=utilization.gpu",
            "--format=csv,noheader,nounits",
            "-lms",
            "200",
        ]
        self._process = None
        if shutil.which(command[0]):
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        return self

    def _read(self) -> None:
        for line in self._process.stdout:
            if line.strip().isdigit():
                self._samples.append((time.time(), int(line) / 100))

    def __exit__(self, *error: object) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait()

    def between(self, start: float | None, end: float | None) -> float | None:
        """Return the mean utilisation between two times, or None without samples."""
        inside = [busy for when, busy in self._samples if start and end and start <= when <= end]
        return sum(inside) / len(inside) if inside else None


if __name__ == "__main__":
    main()
