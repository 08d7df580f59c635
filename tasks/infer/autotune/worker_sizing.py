"""The choices from a model's trial: batch size, number of workers, and rows per task."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from overnight.tasks.infer.autotune.trial import Trial
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.resources.cluster import read_cluster
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.resources.planner import workers_in_memory

SECONDS_A_WORKER = 10.0  # of work that justify one more worker
# the cost of a death, and the time in which the last worker runs alone
SHORTEST_TASK_SECONDS, LONGEST_TASK_SECONDS = 1.0, 2.0
TASKS_A_WORKER = 20  # at least, unless they would be too short: then no worker runs alone for long at the end
ROWS_A_TASK, UNREAD_ROWS_A_TASK = 512, 4096  # at most; if the worker reads them itself, Ray's memory holds none
ROWS_A_BLOCK = 4096  # maximum of rows that reading passes on, approximately
LONGEST_BLOCK_SECONDS = 20.0  # the maximum for a worker to process one block


@dataclass(frozen=True)
class Work:
    """The work to do, as far as the manifest and the sample show it.

    `rows` is infinite if unknown. `prepare_seconds` is per row. `blocks`
    of the reading order are set if workers read them themselves. `rows_per_part` is the job's setting, if any.
    """

    rows: float
    prepare_seconds: float
    blocks: int | None
    rows_per_part: int | None


@dataclass(frozen=True)
class Choice:
    """A link's model as in the job file and as it is used, its workers, its trial, and rows or blocks per Ray task.

    `each` is the number of the model's inputs per source row. `rows_a_block` is the limit for blocks of a slow model;
    None means no limit.
    """

    link: Link
    used: Predictor
    pool: Pool
    trial: Trial | None
    at_once: int
    rows_a_block: int | None = None
    each: float = 1.0

    @property
    def used_link(self) -> Link:
        """Return the link with the model as it is used."""
        return replace(self.link, model=self.used)


def choose(link: Link, planned: Pool, trial: Trial | None, plan: Plan, work: Work, each: float) -> Choice:
    """Return the settings with which a model runs.

    If it prepares its own rows, memory may hold fewer workers than planned.
    """
    found = {"batch_size": trial.batch_size} if trial and trial.batch_size else {}
    used = link.model.model_copy(update=found)
    per_call = max(round(used.rows_at_once() / each), 1)
    own = trial.seconds_a_row * each if trial and trial.seconds_a_row else None
    small = rows_a_block(per_call, own)
    if not plan.is_beside:
        return Choice(link, used, planned, trial, per_call, small, each)
    seconds = own + work.prepare_seconds if own else None
    to_do = work.rows * seconds if seconds else math.inf
    most = max(min(planned.maximum, workers_in_memory(trial.memory if trial else 0, read_cluster()[0])), 1)
    pool = replace(planned, maximum=most, initial=int(np.clip(to_do / SECONDS_A_WORKER, 1, most)))
    blocks = work.blocks if pool.maximum == planned.maximum else None
    most_rows = ROWS_A_TASK if blocks is None else UNREAD_ROWS_A_TASK
    most_rows = min(most_rows, work.rows_per_part or most_rows)
    at_once = rows_a_task(per_call, seconds, to_do / pool.initial, most_rows)
    if blocks is not None:
        at_once = max(round(at_once * blocks / max(work.rows, 1)), 1)
    return Choice(link, used, pool, trial, at_once, small, each)


def rows_a_task(rows_per_call: int, seconds_a_row: float | None, seconds_a_worker: float, most: int) -> int:
    """Return the rows per task: calls that fill seconds, so that Ray's overhead per task is small."""
    seconds = np.clip(seconds_a_worker / TASKS_A_WORKER, SHORTEST_TASK_SECONDS, LONGEST_TASK_SECONDS)
    count = seconds / seconds_a_row if seconds_a_row else rows_per_call
    return rows_per_call * int(np.clip(count / rows_per_call, 1, max(most // rows_per_call, 1)))


def rows_a_block(rows_per_call: int, seconds_a_row: float | None) -> int | None:
    """Return how many rows of a slow model a block may have: calls that fill a task; None if it is fast.

    Ray passes on a block only when it is full, and a worker takes whole blocks.
    """
    if not seconds_a_row or seconds_a_row * ROWS_A_BLOCK <= LONGEST_BLOCK_SECONDS:
        return None
    return rows_per_call * max(int(LONGEST_TASK_SECONDS / seconds_a_row / rows_per_call), 1)


def stream_seconds_a_row(choices: Sequence[Choice], work: Work, is_prepared_beside: bool) -> float | None:
    """Return the seconds that all workers together need per source row; None if nothing was measured."""
    models = [choice.trial.seconds_a_row * choice.each / choice.pool.initial for choice in choices if choice.trial]
    preparing = work.prepare_seconds / choices[0].pool.initial if is_prepared_beside else 0.0
    return sum(models) + preparing if any(models) else None
