"""Find what limited a run: the slowest stage, the load of CPUs and devices, the machine's limit, and advice.

A stage's load is its worker seconds / (workers x seconds). Stages on the same CPUs have one load together, and writing
has `WRITES_AT_ONCE` workers. The stage with the greatest load bounded the run. If no load is above one half, start-up
or waiting bounded it (for storage, or for space in the object store), or the work was too little for many workers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from overnight.tasks.resources.plan import WRITES_AT_ONCE

READING, DECODING, MODEL, WRITING = "reading", "preprocessing", "the model", "writing"
START, WAITING = "start-up", "waiting"
SECONDS_A_DAY, BILLION = 86_400, 1_000_000_000
ENOUGH = 0.5  # of its capacity: a stage below it is not a bound


@dataclass(frozen=True)
class Capacity:
    """The CPUs of the cluster, and the model workers that have an accelerator: 0 if the models run on CPUs."""

    cpus: float
    device_workers: int


@dataclass(frozen=True)
class _Load:
    """How busy a stream was: worker seconds by stage, and fractions of the capacity; `gpus_busy` is None without GPUs.

    `working_seconds` are those of the stream without `start_seconds`.
    """

    seconds: Mapping[str, float]
    cpus_busy: float
    gpus_busy: float | None
    writers_busy: float
    start_seconds: float
    working_seconds: float

    def bound(self) -> str:
        """Return what bounded the stream."""
        seconds = self.seconds
        if self.start_seconds > self.working_seconds:
            return START
        if self.writers_busy > max(self.cpus_busy, self.gpus_busy or 0.0, ENOUGH):
            return WRITING
        on_cpu = {READING: seconds["ingest"], DECODING: seconds["preprocess"]}
        if self.gpus_busy is None:
            on_cpu[MODEL] = seconds["infer"]
        elif self.gpus_busy >= max(self.cpus_busy, ENOUGH):
            return MODEL
        longest = max(on_cpu, key=lambda stage: on_cpu[stage])
        fills_one_worker = self.gpus_busy is None and on_cpu[longest] >= ENOUGH * self.working_seconds
        if self.cpus_busy >= ENOUGH or fills_one_worker:
            return longest
        return READING if seconds["ingest"] > max(seconds["preprocess"], seconds["infer"]) else WAITING

    def advice(self, bound: str, stream_seconds: float) -> str:
        """Return a sentence about the bound, with what to do."""
        idle, devices = "", "CPUs, or a GPU"
        if self.gpus_busy is not None:
            idle, devices = f" the GPUs waited {1 - self.gpus_busy:.0%} of the time;", "GPUs"
        work = _work(self.seconds) or 1.0
        if bound == START:
            return (
                f"bound by start-up: {self.start_seconds:.0f} of {stream_seconds:.0f} s; larger partitions waste less "
                "of it"
            )
        if self.gpus_busy is None and self.cpus_busy < ENOUGH and bound not in (WRITING, WAITING):
            return f"bound by {bound}, on few workers: there was too little work for more"
        if bound == DECODING:
            remedy = "add CPUs, or, for JPEG files, decode: fast if it is not set yet"
            return f"preprocess-bound ({self.seconds['preprocess'] / work:.0%} of the work):{idle} {remedy}"
        if bound == READING:
            return f"read-bound:{idle} put the data nearer, or into larger files"
        if bound == MODEL:
            share = f"{self.seconds['infer'] / work:.0%} of the work"
            return f"model-bound ({share}): add {devices}, or try dtype: bfloat16"
        if bound == WRITING:
            return f"write-bound:{idle} check the sink's storage"
        return f"bound by no measured stage, but by waiting:{idle} check the storage, and Ray's object store"


def bottleneck(
    stages: Mapping[str, Mapping[str, float]],
    capacity: Capacity,
    stream_seconds: float,
    first_seconds: float,
    first_rows: int = 0,
) -> dict[str, Any]:
    """Return the receipt's `performance`: what bounded the run, how busy CPUs and GPUs were, rates, and advice.

    The first `first_rows` had passed the model by `first_seconds`: their work is not start-up. Rates count source rows.
    """
    rows = stages["ingest"]["rows"]
    seconds = {stage: measures["seconds"] for stage, measures in stages.items()}
    # the first rows are one block, which passed one worker after the other
    start_seconds = max(first_seconds - _work(seconds) * min(first_rows / max(rows, 1), 1), 0.0)
    working_seconds = max(stream_seconds - start_seconds, 1e-3)
    cpu_seconds, device_seconds = seconds["ingest"] + seconds["preprocess"] + seconds["infer"], 0.0
    gpus_busy, least_seconds = None, 0.0
    if capacity.device_workers:
        cpu_seconds, device_seconds = seconds["ingest"] + seconds["preprocess"], seconds["infer"]
        least_seconds = device_seconds / capacity.device_workers
        gpus_busy = min(least_seconds / working_seconds, 1.0)
    least_seconds = max(least_seconds, cpu_seconds / capacity.cpus)
    cpus_busy = min(cpu_seconds / (capacity.cpus * working_seconds), 1.0)
    writers_busy = min(seconds["write"] / (WRITES_AT_ONCE * working_seconds), 1.0)
    load = _Load(seconds, cpus_busy, gpus_busy, writers_busy, start_seconds, working_seconds)
    bound = load.bound()
    rates: dict[str, float | None] = {"limit_rows_per_second": None, "fraction_of_limit": None}
    if least_seconds and rows:  # the limit: the work fills all CPUs, and the devices of the model, without gaps
        limit = rows / least_seconds
        rates["limit_rows_per_second"] = round(limit, 3)
        rates["fraction_of_limit"] = round(rows / working_seconds / limit, 3)
    return {
        "bounded_by": bound,
        "cpus_busy": round(cpus_busy, 3),
        "gpus_busy": None if gpus_busy is None else round(gpus_busy, 3),
        "device_seconds": round(device_seconds, 3),
        "start_seconds": round(start_seconds, 3),
        "rows_per_second": round(rows / stream_seconds, 3) if stream_seconds else 0.0,
        "rows_per_second_streaming": round(rows / working_seconds, 3),
        **rates,
        "advice": load.advice(bound, stream_seconds),
    }


def engine_figures(
    engines: Mapping[str, Mapping[str, float]], gpus: Mapping[str, float], seconds: float
) -> dict[str, dict[str, Any]]:
    """Return the receipt's `performance.engines`, by model: the counters of its engines, and rates.

    `gpus` has the GPUs that the workers of each model reserve, and `seconds` those of the stream at its full rate.
    """
    figures: dict[str, dict[str, Any]] = {}
    for model, counters in engines.items():
        prompt, generated = counters.get("prompt_tokens", 0), counters.get("generated_tokens", 0)
        cached, prefixes = counters.get("cached_tokens", 0), counters.get("prefix_tokens", 0)
        gpu_days = gpus.get(model, 0) * seconds / SECONDS_A_DAY
        is_known = gpu_days > 0 and generated > 0
        figures[model] = {
            "prompt_tokens": int(prompt),
            "generated_tokens": int(generated),
            "cached_tokens": int(cached),
            "prefix_hit_rate": round(cached / prefixes, 3) if prefixes else None,
            "preemptions": int(counters.get("preemptions", 0)),
            "prompt_tokens_per_second": round(prompt / seconds, 1) if seconds > 0 else None,
            "generated_tokens_per_second": round(generated / seconds, 1) if seconds > 0 else None,
            "gpu_days_per_billion_generated_tokens": round(gpu_days / generated * BILLION, 2) if is_known else None,
        }
    return figures


def _work(seconds: Mapping[str, float]) -> float:
    return seconds["ingest"] + seconds["preprocess"] + seconds["infer"]
