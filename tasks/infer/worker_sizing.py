"""Choose the number of workers and the rows per Ray task, with reasons, after a model's trial.

Only the trial shows the seconds of a row and the memory of a worker. The plan knows only CPUs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.infer.batch_size import LARGEST
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.trial import Trial
from overnight.tasks.resources.cluster import read_nodes
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.resources.planner import workers_in_memory
from overnight.tasks.rows import blocks
from overnight.tasks.workers.forked_process import Begun

SECONDS_A_WORKER = 10.0  # of work that justify one more worker
# A worker that dies loses one task, and the last worker runs alone for one.
SHORTEST_TASK_SECONDS, LONGEST_TASK_SECONDS = 1.0, 2.0
TASKS_A_WORKER = 20  # at least, unless tasks would be too short: so no worker runs alone for long at the end
UNREAD_ROWS_A_TASK = 4096  # at most, if the worker reads them itself
BYTES_HANDED = 128 * 2**20  # to a device's worker at a time, unless one row has more
ROWS_A_BLOCK = 4096  # the most rows that a read passes on together, about
LONGEST_BLOCK_SECONDS = 20.0  # the maximum for a worker to process one block


@dataclass(frozen=True)
class Work:
    """The work of a run, as far as the manifest and the sample show it."""

    rows: float  # to read; infinite if unknown
    prepare_seconds: float  # to preprocess one row
    bytes_a_row: float  # before the models
    blocks: int | None  # groups of units to read, if workers read their own rows
    rows_per_part: int | None  # of staging, if the job sets it


@dataclass(frozen=True)
class Choice:
    """What was chosen for the model of `link` before the stream starts, and the trial on a sample that led to it.

    `at_once` is the work per Ray task: a number of rows for a device, or of groups of units if the workers read their
    own rows. If it is None, a task gets one block, so that Ray Data never waits for more rows than its memory holds.
    """

    link: Link
    pool: Pool  # with the chosen number of workers
    trial: Trial | None  # None if no row of the sample passed the model
    at_once: int | None
    rows_a_block: int | None = None  # the most that a block of a slow model should have
    each: float = 1.0  # rows that the model gets per source row, because a step may make several of one
    loaded_in: Begun | None = None  # the process of the trial, which the first worker takes over

    @property
    def tried_link(self) -> Link:
        """Return `link` with the measurements of the trial."""
        if self.trial is None:
            return replace(self.link, pace=0.0, columns=None)
        return replace(self.link, pace=self.trial.seconds_a_row, columns=self.trial.columns)

    def without_process(self) -> "Choice":
        """Return this choice after a later model of its engine has taken over the process of its trial, or ended it."""
        return replace(self, trial=self.trial and replace(self.trial, process=None))


def choose(link: Link, pool: Pool, trial: Trial | None, plan: Plan, work: Work, each: float) -> Choice:
    """Choose the number of workers and the work per Ray task for a model with this `pool` in `plan`."""
    model = link.model
    per_call = max(round(model.rows_at_once(model.rows_per_call()) / each), 1)
    model_seconds = trial.seconds_a_row * each if trial else 0.0
    choice = Choice(link, pool, trial, None, rows_a_block(per_call, model_seconds), each)
    if not plan.is_colocated:
        return replace(choice, at_once=_rows_for_device(link, work, each))
    seconds, run_seconds = None, math.inf
    if model_seconds:
        seconds = model_seconds + work.prepare_seconds
        run_seconds = work.rows * seconds
    memory = trial.memory if trial else 0
    workers_here = max(min(pool.initial, workers_in_memory(memory, read_nodes())), 1)
    most_workers = workers_here + pool.maximum - pool.initial  # the others are on new nodes
    workers = int(np.clip(run_seconds / SECONDS_A_WORKER, 1, most_workers))
    choice = replace(choice, pool=replace(pool, maximum=most_workers, initial=workers))
    if work.blocks is None or most_workers < pool.maximum:  # Ray tasks read: `operators.placement`
        return choice
    most_rows = min(UNREAD_ROWS_A_TASK, work.rows_per_part or UNREAD_ROWS_A_TASK)
    rows = rows_a_task(per_call, seconds, run_seconds / workers, most_rows)
    return replace(choice, at_once=max(round(rows * work.blocks / max(work.rows, 1)), 1))


def _rows_for_device(link: Link, work: Work, each: float) -> int | None:
    """Return the rows that a device's worker gets at a time: those of its largest call. None for CPUs: a block."""
    model = link.model
    if not model.accelerators():
        return None
    largest = model.rows_per_call()
    if model.tunes_batch_size():
        largest = max(LARGEST, largest)
    fitting = int(BYTES_HANDED / max(work.bytes_a_row, 1))
    return max(min(round(link.rows_at_once(largest) / each), fitting), 1)


def rows_a_task(rows_per_call: int, seconds_a_row: float | None, seconds_a_worker: float, most: int) -> int:
    """Return the rows of one Ray task: whole calls for one to two seconds, fewer if a worker has little work."""
    seconds = np.clip(seconds_a_worker / TASKS_A_WORKER, SHORTEST_TASK_SECONDS, LONGEST_TASK_SECONDS)
    count = seconds / seconds_a_row if seconds_a_row else rows_per_call
    return rows_per_call * int(np.clip(count / rows_per_call, 1, max(most // rows_per_call, 1)))


def rows_a_block(rows_per_call: int, seconds_a_row: float | None) -> int | None:
    """Return the most rows of a block that a slow model gets, for about two seconds, or None if it is fast."""
    if not seconds_a_row or seconds_a_row * ROWS_A_BLOCK <= LONGEST_BLOCK_SECONDS:
        return None
    return rows_per_call * max(int(LONGEST_TASK_SECONDS / seconds_a_row / rows_per_call), 1)


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
    if plan.is_colocated and not workers_prepare and choices[0].pool.maximum < plan.pools[0].maximum:
        tasks = "in Ray tasks of their own: memory holds fewer workers than there are CPUs"
    elif plan.task_concurrency:
        tasks += f", {plan.task_concurrency} at most"
    labels: dict[str, Any] = {
        "a row costs, measured on a sample": ", ".join(costs),
        "rows are read": tasks,
        "rows are prepared": tasks,
    }
    unit = "rows"
    if workers_read:
        labels["rows are read"], unit = "in the model's workers", "blocks of files"
    if workers_prepare:
        labels["rows are prepared"] = "in the model's workers (placement: colocated)"
    for choice in choices:
        for name, value in _of_model(choice, unit).items():
            label = name
            if len(choices) > 1:
                label = f"{choice.pool.label}: {name}"
            labels[label] = value
    for number, note in enumerate(plan.notes, 1):
        labels[f"note {number}"] = note
    return labels


def _of_model(choice: Choice, unit: str) -> dict[str, Any]:
    pool, trial, model = choice.pool, choice.trial, choice.link.model
    batch = "from the job file"
    if model.batch_size == "auto":
        batch = "more while a row then costs less" if model.tunes_batch_size() else "by default"
    memory, work = "not measured: no row passed", "a block of rows"
    if trial:
        memory = f"{trial.memory / 2**30:.2f} GiB, measured"
    if choice.at_once:
        work = f"{choice.at_once} {unit}"
    workers: int | str = pool.minimum
    if pool.maximum > pool.minimum:
        workers = f"{pool.minimum} to {pool.maximum}, {pool.initial} at first"
    return {
        "model": getattr(model, "model", None) or getattr(model, "target", model.name),
        "workers": workers,
        "a worker reserves": ", ".join(f"{amount:g} {name}" for name, amount in pool.needs().items()) or "nothing",
        "memory of a worker": memory,
        "batch size": f"{model.describe_batch()}, {batch}",
        "work per task": work,
    }


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
