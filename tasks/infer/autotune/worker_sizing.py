"""The choices that follow from a model's trial: batch size, number of workers, and rows per Ray task."""

import math
from dataclasses import dataclass, replace

import numpy as np

from overnight.tasks.infer.autotune.trial import Trial
from overnight.tasks.infer.batch_size import LARGEST
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.resources.cluster import read_nodes
from overnight.tasks.resources.plan import Plan, Pool
from overnight.tasks.resources.planner import workers_in_memory
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
    """The work of a run, as far as the manifest and the sample show it.

    `rows` is the number of rows to read, infinite if unknown. `prepare_seconds` is the time to preprocess one row.
    `bytes_a_row` are those of a row before the models. `blocks` is the number of groups of units to read, if workers
    read their own rows, otherwise None. `rows_per_part` is the number of rows that the job sets for a staged part, or
    None if it sets no number.
    """

    rows: float
    prepare_seconds: float
    bytes_a_row: float
    blocks: int | None
    rows_per_part: int | None


@dataclass(frozen=True)
class Choice:
    """What was chosen for the model of `link` before the stream starts, and the trial on a sample that led to it.

    `pool` has the chosen number of workers. `trial` is None if the model failed on every row of the sample, or there
    was no row. `at_once` is the work per Ray task: a number of rows for a device, or of groups of units if the
    workers read their own rows. If it is None, a task gets one block, so that Ray Data never waits for more rows
    than its memory holds. If the model is slow, `rows_a_block` is the most rows that its blocks should have;
    otherwise it is None. `each` is the mean number of rows that the model gets per source row, because a step may
    make several of one. `loaded_in` is the process of the trial, which keeps the model loaded for the first worker;
    None if there is none.
    """

    link: Link
    pool: Pool
    trial: Trial | None
    at_once: int | None
    rows_a_block: int | None = None
    each: float = 1.0
    loaded_in: Begun | None = None

    @property
    def tried_link(self) -> Link:
        """Return `link` with what the trial showed of its model."""
        pace, columns = (self.trial.seconds_a_row, self.trial.columns) if self.trial else (0.0, None)
        return replace(self.link, pace=pace, columns=columns)


def choose(link: Link, planned: Pool, trial: Trial | None, plan: Plan, work: Work, each: float) -> Choice:
    """Choose the number of workers and the work per Ray task for the model of `link`.

    `planned` is the model's pool in `plan`. `trial` is None if no row passed the model. `each` is the mean number of
    rows that the model gets per source row. If the workers preprocess their own rows, no more of them may run than fit
    into the memory. Then one worker starts for each `SECONDS_A_WORKER` seconds of `work`, up to that limit.
    """
    model = link.model
    per_call = max(round(model.rows_at_once(model.rows_per_call()) / each), 1)
    own = trial.seconds_a_row * each if trial and trial.seconds_a_row else None
    small = rows_a_block(per_call, own)
    if not plan.is_beside:
        return Choice(link, planned, trial, _handed(model, work, each), small, each)
    seconds = own + work.prepare_seconds if own else None
    to_do = work.rows * seconds if seconds else math.inf
    on_new_nodes = planned.maximum - planned.initial
    here = max(min(planned.initial, workers_in_memory(trial.memory if trial else 0, read_nodes())), 1)
    most = here + on_new_nodes
    pool = replace(planned, maximum=most, initial=int(np.clip(to_do / SECONDS_A_WORKER, 1, most)))
    if work.blocks is None or pool.maximum != planned.maximum:
        return Choice(link, pool, trial, None, small, each)
    most_rows = min(UNREAD_ROWS_A_TASK, work.rows_per_part or UNREAD_ROWS_A_TASK)
    rows = rows_a_task(per_call, seconds, to_do / pool.initial, most_rows)
    return Choice(link, pool, trial, max(round(rows * work.blocks / max(work.rows, 1)), 1), small, each)


def _handed(model: Predictor, work: Work, each: float) -> int | None:
    """Return the rows that a device's worker gets at a time: those of its largest call. None for CPUs: a block."""
    if not model.accelerators():
        return None
    largest = max(LARGEST, model.rows_per_call()) if model.tunes_batch_size() else model.rows_per_call()
    return max(min(round(model.rows_at_once(largest) / each), int(BYTES_HANDED / max(work.bytes_a_row, 1))), 1)


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
