"""The text of the Prefect artifact `<job>-plan`: how a run reads rows and runs its models, and why."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from overnight.tasks.infer.autotune.worker_sizing import Choice
from overnight.tasks.resources.plan import Plan
from overnight.tasks.rows import blocks


def explanation(
    plan: Plan, choices: Sequence[Choice], sample: pa.Table, workers_prepare: bool, workers_read: bool
) -> dict[str, Any]:
    """Return label -> a measurement, or a choice with its reason, for a Prefect artifact."""
    costs = [
        f"{_milliseconds(blocks.seconds_a_row(sample, 'ingest'))} to read",
        f"{_milliseconds(blocks.seconds_a_row(sample, 'preprocess'))} to prepare",
    ]
    for choice in choices:
        cost = _milliseconds(choice.trial.seconds_a_row) if choice.trial else "nothing known of"
        costs.append(f"{cost} {choice.pool.label}")
    tasks = f"in Ray tasks of {plan.task_cpus:g} CPU"
    if plan.is_beside and not workers_prepare and choices[0].pool.maximum < plan.pools[0].maximum:
        tasks = "in Ray tasks of their own: memory holds fewer workers than there are CPUs"
    elif plan.task_concurrency:
        tasks += f", {plan.task_concurrency} at most"
    labels: dict[str, Any] = {
        "a row costs, measured on a sample": ", ".join(costs),
        "rows are read": "in the model's workers" if workers_read else tasks,
        "rows are prepared": "in the model's workers (placement: colocated)" if workers_prepare else tasks,
    }
    for choice in choices:
        prefix = f"{choice.pool.label}: " if len(choices) > 1 else ""
        for name, value in _of_model(choice, "blocks of files" if workers_read else "rows").items():
            labels[prefix + name] = value
    for number, note in enumerate(plan.notes, 1):
        labels[f"note {number}"] = note
    return labels


def _of_model(choice: Choice, unit: str) -> dict[str, Any]:
    pool, trial, model = choice.pool, choice.trial, choice.link.model
    batch = "from the job file"
    if model.batch_size == "auto":
        batch = "more while a row then costs less" if model.tunes_batch_size() else "by default"
    workers: int | str = pool.minimum
    if pool.maximum > pool.minimum:
        workers = f"{pool.minimum} to {pool.maximum}, {pool.initial} at first"
    return {
        "model": getattr(model, "model", None) or getattr(model, "target", model.name),
        "workers": workers,
        "a worker reserves": ", ".join(f"{amount:g} {name}" for name, amount in pool.needs().items()) or "nothing",
        "memory of a worker": f"{trial.memory / 2**30:.2f} GiB, measured" if trial else "not measured: no row passed",
        "batch size": f"{model.describe_batch()}, {batch}",
        "work per task": f"{choice.at_once} {unit}" if choice.at_once else "a block of rows",
    }


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
