"""Find what limited a run: the slowest stage, the load of CPUs and devices, the machine's limit, and advice.

It uses the measurements of every stage. A stage's *demand* is the fraction of its capacity that its work took while the
stream ran: worker seconds / (workers x seconds). Stages on the same CPUs have one demand together. Writing has
`WRITES_AT_ONCE` workers, which mostly wait. The stage with the greatest demand bounded the run. If no demand is above
one half, start-up or waiting for storage bounded it, or the work was too little for many workers.

The machine's *limit* is the rate at which the measured work would fill the plan's resources without gaps. These are all
CPUs for work on CPUs, and the devices of all model workers for the model. Rates are source rows per second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from overnight.tasks.resources.plan import WRITES_AT_ONCE

READING, DECODING, MODEL, WRITING, START = "reading", "preprocessing", "the model", "writing", "start-up"
ENOUGH = 0.5  # of its capacity: a stage below it is not a bound


@dataclass(frozen=True)
class Capacity:
    """The resources of a stream: the CPUs of the cluster, and the workers of the models that have an accelerator.

    `device_workers` is 0 if the models run on CPUs.
    """

    cpus: float
    device_workers: int


def bottleneck(
    stages: Mapping[str, Mapping[str, float]],
    capacity: Capacity,
    stream_seconds: float,
    first_seconds: float,
    first_rows: int = 0,
) -> dict[str, Any]:
    """Return the receipt's `performance`: what bounded the run, how busy CPUs and GPUs were, rates, and advice.

    How busy they were is a fraction from 0 to 1, None for GPUs if there are none. GPUs include other accelerators.
    `device_seconds` are the seconds of models on these. Rates are source rows per second.

    Args:
        stages: Stage -> its worker `seconds` and its `rows`. For `write`, these are of staging.
        stream_seconds: The seconds that the stream took.
        first_seconds: The seconds until the first rows had passed the model.
        first_rows: The number of these rows. The work on them does not count as start-up.
    """
    rows = stages["ingest"]["rows"]
    seconds = {stage: found["seconds"] for stage, found in stages.items()}
    work = sum(seconds[stage] for stage in ("ingest", "preprocess", "infer"))
    start_seconds = max(first_seconds - work * min(first_rows / max(rows, 1), 1), 0.0)
    working = max(stream_seconds - start_seconds, 1e-3)
    on_device = capacity.device_workers > 0
    cpu_seconds = seconds["ingest"] + seconds["preprocess"] + (0.0 if on_device else seconds["infer"])
    cpus_busy = min(cpu_seconds / (capacity.cpus * working), 1.0)
    gpus_busy = min(seconds["infer"] / (capacity.device_workers * working), 1.0) if on_device else None
    least = max(cpu_seconds / capacity.cpus, seconds["infer"] / capacity.device_workers if on_device else 0.0)
    writers_busy = min(seconds["write"] / (WRITES_AT_ONCE * working), 1.0)
    bound = _bound(seconds, cpus_busy, gpus_busy, writers_busy, start_seconds, working)
    rate = rows / stream_seconds if stream_seconds else 0.0
    limit = rows / least if least else None
    return {
        "bounded_by": bound,
        "cpus_busy": round(cpus_busy, 3),
        "gpus_busy": None if gpus_busy is None else round(gpus_busy, 3),
        "device_seconds": round(seconds["infer"], 3) if on_device else 0.0,
        "start_seconds": round(start_seconds, 3),
        "rows_per_second": round(rate, 3),
        "rows_per_second_streaming": round(rows / working, 3),
        "limit_rows_per_second": None if limit is None else round(limit, 3),
        "fraction_of_limit": None if limit is None else round(rows / working / limit, 3),
        "advice": _advice(bound, seconds, cpus_busy, gpus_busy, writers_busy, start_seconds, stream_seconds),
    }


def _bound(
    seconds: Mapping[str, float],
    cpus_busy: float,
    gpus_busy: float | None,
    writers_busy: float,
    start_seconds: float,
    working: float,
) -> str:
    if start_seconds > working:
        return START
    if writers_busy > max(cpus_busy, gpus_busy or 0.0, ENOUGH):
        return WRITING
    on_cpu = {READING: seconds["ingest"], DECODING: seconds["preprocess"]}
    if gpus_busy is None:
        on_cpu[MODEL] = seconds["infer"]
    elif gpus_busy >= max(cpus_busy, ENOUGH):
        return MODEL
    most = max(on_cpu, key=lambda stage: on_cpu[stage])
    if cpus_busy >= ENOUGH or (gpus_busy is None and on_cpu[most] >= ENOUGH * working):
        return most
    return READING if seconds["ingest"] > max(seconds["preprocess"], seconds["infer"]) else WRITING


def _advice(
    bound: str,
    seconds: Mapping[str, float],
    cpus_busy: float,
    gpus_busy: float | None,
    writers_busy: float,
    start_seconds: float,
    stream_seconds: float,
) -> str:
    idle = "" if gpus_busy is None else f" the GPUs waited {1 - gpus_busy:.0%} of the time;"
    work = sum(seconds[stage] for stage in ("ingest", "preprocess", "infer")) or 1.0
    if bound == START:
        return f"bound by start-up: {start_seconds:.0f} of {stream_seconds:.0f} s; larger partitions waste less of it"
    if gpus_busy is None and cpus_busy < ENOUGH and bound != WRITING:
        return f"bound by {bound}, on few workers: there was too little work for more"
    if bound == DECODING:
        share = seconds["preprocess"] / work
        help_ = "add CPUs, or, for JPEG files, decode: fast if it is not set yet"
        return f"preprocess-bound ({share:.0%} of the work):{idle} {help_}"
    if bound == READING:
        return f"read-bound:{idle} put the data nearer, or into larger files"
    if bound == WRITING:
        told = "write-bound" if writers_busy > ENOUGH else "bound by no measured stage, most likely by waiting"
        return f"{told}:{idle} check the sink's storage"
    where = "GPUs" if gpus_busy is not None else "CPUs, or a GPU"
    return f"model-bound ({seconds['infer'] / work:.0%} of the work): add {where}, or try dtype: bfloat16"
