"""The choices that follow from a model's trial: batch size, number of workers, and rows per Ray task."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from overnight.tasks.infer.autotune.trial import Trial
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.resources.cluster import read_nodes
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.resources.planner import workers_in_memory

SECONDS_A_WORKER = 10.0  # of work that justify one more worker
# A worker that dies loses one task, and the last worker runs alone for one.
SHORTEST_TASK_SECONDS, LONGEST_TASK_SECONDS = 1.0, 2.0
TASKS_A_WORKER = 20  # at least, unless tasks would be too short: so no worker runs alone for long at the end
ROWS_A_TASK, UNREAD_ROWS_A_TASK = 512, 4096  # at most: in Ray's memory, and if the worker reads them itself
ROWS_A_BLOCK = 4096  # the most rows that a read passes on together, about
LONGEST_BLOCK_SECONDS = 20.0  # the maximum for a worker to process one block


@dataclass(frozen=True)
class Work:
    """The work of a run, as far as the manifest and the sample show it.

    `rows` is the number of rows to read, infinite if unknown. `prepare_seconds` is the time to preprocess one row.
    `blocks` is the number of groups of units to read, if workers read their own rows, otherwise None. `rows_per_part`
    is the number of rows that the job sets for a staged part, or None if it sets no number.
    """

    rows: float
    prepare_seconds: float
    blocks: int | None
    rows_per_part: int | None


@dataclass(frozen=True)
class Choice:
    """What was chosen for the model of `link` before the stream starts, and the trial on a sample that led to it.

    `link` has the model as in the job file, and `used` is the model with the chosen batch size. `pool` has the chosen
    number of workers. `trial` is None if the model failed on every row of the sample, or there was no row. `at_once` is
    the work per Ray task: a number of rows, or of groups of units if the workers read their own rows. If the model is
    slow, `rows_a_block` is the most rows that its blocks should have; otherwise it is None. `each` is the mean number
    of rows that the model gets per source row, because a step may make several of one.
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
        """Return a copy of `link` whose model is `used`, the model with the chosen batch size."""
        return replace(self.link, model=self.used)


def choose(link: Link, planned: Pool, trial: Trial | None, plan: Plan, work: Work, each: float) -> Choice:
    """Choose the batch size, the number of workers and the work per Ray task for the model of `link`.

    `planned` is the model's pool in `plan`. `trial` is None if no row passed the model. `each` is the mean number of
    rows that the model gets per source row. If the workers preprocess their own rows, no more of them may run than fit
    into the memory. Then one worker starts for each `SECONDS_A_WORKER` seconds of `work`, up to that limit.
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
    on_new_nodes = planned.maximum - planned.initial
    here = max(min(planned.initial, workers_in_memory(trial.memory if trial else 0, read_nodes())), 1)
    most = here + on_new_nodes
    pool = replace(planned, maximum=most, initial=int(np.clip(to_do / SECONDS_A_WORKER, 1, most)))
    blocks = work.blocks if pool.maximum == planned.maximum else None
    most_rows = ROWS_A_TASK if blocks is None else UNREAD_ROWS_A_TASK
    most_rows = min(most_rows, work.rows_per_part or most_rows)
    at_once = rows_a_task(per_call, seconds, to_do / pool.initial, most_rows)
    if blocks is not None:
        at_once = max(round(at_once * blocks / max(work.rows, 1)), 1)
    return Choice(link, used, pool, trial, at_once, small, each)


def rows_a_task(rows_per_call: int, seconds_a_row: float | None, seconds_a_worker: float, most: int) -> int:
    """Return the number of rows of one Ray task: whole calls of the model, for one to two seconds of work.

    So Ray's overhead per task is small. `rows_per_call` is the number of rows of one call. `seconds_a_row` is the time
    for one row; if it is None, a task is one call. `seconds_a_worker` is the work of one worker in the whole run, in
    seconds: if it is little, tasks are shorter. A task has at most `most` rows, but at least one call.
    """
    seconds = np.clip(seconds_a_worker / TASKS_A_WORKER, SHORTEST_TASK_SECONDS, LONGEST_TASK_SECONDS)
    count = seconds / seconds_a_row if seconds_a_row else rows_per_call
    return rows_per_call * int(np.clip(count / rows_per_call, 1, max(most // rows_per_call, 1)))


def rows_a_block(rows_per_call: int, seconds_a_row: float | None) -> int | None:
    """Return the most rows of a block that a slow model gets, or None if the model is fast.

    Ray passes on a block only when it is full, and a worker takes whole blocks. So a block for a slow model has whole
    calls of `rows_per_call` rows, for about two seconds. A model is slow if it needs more than 20 s for 4,096 rows. It
    counts as fast if `seconds_a_row` is None, which means unknown.
    """
    if not seconds_a_row or seconds_a_row * ROWS_A_BLOCK <= LONGEST_BLOCK_SECONDS:
        return None
    return rows_per_call * max(int(LONGEST_TASK_SECONDS / seconds_a_row / rows_per_call), 1)


def stream_seconds_a_row(choices: Sequence[Choice], work: Work, is_prepared_beside: bool) -> float | None:
    """Return the seconds that all models together take per source row, or None if no model was measured.

    `choices` has one element per model. The time of each model is divided by the number of its workers at the start. If
    `is_prepared_beside`, the first model's workers also preprocess the rows, and `work.prepare_seconds` counts, too.
    """
    models = [choice.trial.seconds_a_row * choice.each / choice.pool.initial for choice in choices if choice.trial]
    preparing = work.prepare_seconds / choices[0].pool.initial if is_prepared_beside else 0.0
    return sum(models) + preparing if any(models) else None
