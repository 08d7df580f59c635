"""The text of the Prefect artifact `<job>-plan`: how a run reads rows and runs its models, and why."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from overnight.tasks.infer.autotune.worker_sizing import Choice
from overnight.tasks.resources.plan import Plan
from overnight.tasks.rows import blocks


def explanation(
    plan: Plan, choices: Sequence[Choice], sample: pa.Table, is_beside: bool, is_unread: bool
) -> dict[str, Any]:
    """Return how a run reads rows and runs its models, and why, as label -> value, for a Prefect artifact.

    A value is a measurement, or a choice with its reason. `choices` has one element per model. `sample` is a block
    whose rows carry the seconds of their reading and preprocessing. `is_beside` is True if the first model's workers
    preprocess their own rows. `is_unread` is True if they also read them.
    """
    costs = [
        f"{_milliseconds(blocks.seconds_a_row(sample, 'ingest'))} to read",
        f"{_milliseconds(blocks.seconds_a_row(sample, 'preprocess'))} to prepare",
        *(f"{_cost(choice)} {choice.pool.label}" for choice in choices),
    ]
    several = len(choices) > 1
    is_short = plan.is_beside and not is_beside and choices[0].pool.maximum < plan.pools[0].maximum
    apart = "in Ray tasks of their own: memory holds fewer workers than there are CPUs" if is_short else _tasks(plan)
    told: dict[str, Any] = {
        "a row costs, measured on a sample": ", ".join(costs),
        "rows are read": "in the model's workers" if is_unread else apart,
        "rows are prepared": "in the model's workers (placement: colocated)" if is_beside else apart,
    }
    for choice in choices:
        label = f"{choice.pool.label}: " if several else ""
        told |= {f"{label}{name}": value for name, value in _of_model(choice, is_unread).items()}
    return told | {f"note {number}": note for number, note in enumerate(plan.notes, 1)}


def _of_model(choice: Choice, is_unread: bool) -> dict[str, Any]:
    pool, trial = choice.pool, choice.trial
    model = choice.link.model
    batch = "from the job file"
    if model.batch_size == "auto":
        batch = "more while a row then costs less" if model.tunes_batch_size() else "by default"
    unit = "blocks of files" if is_unread else "rows"
    reserved = ", ".join(f"{amount:g} {name}" for name, amount in pool.needs().items()) or "nothing"
    return {
        "model": getattr(model, "model", None) or getattr(model, "target", model.name),
        "workers": f"{pool.minimum} to {pool.maximum}, {pool.initial} at first"
        if pool.maximum > pool.minimum
        else pool.minimum,
        "a worker reserves": reserved,
        "memory of a worker": f"{trial.memory / 2**30:.2f} GiB, measured" if trial else "not measured: no row passed",
        "batch size": f"{model.describe_batch()}, {batch}",
        "work per task": f"{choice.at_once} {unit}" if choice.at_once else "a block of rows",
    }


def _tasks(plan: Plan) -> str:
    limit = f", {plan.task_concurrency} at most" if plan.task_concurrency else ""
    return f"in Ray tasks of {plan.task_cpus:g} CPU{limit}"


def _cost(choice: Choice) -> str:
    return _milliseconds(choice.trial.seconds_a_row) if choice.trial else "nothing known of"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
