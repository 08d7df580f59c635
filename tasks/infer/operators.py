"""The stream as operators of Ray Data: read, shuffle, preprocess, infer."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import ray.data

from overnight.tasks.infer.autotune.trial_runner import is_forked
from overnight.tasks.infer.autotune.worker_sizing import Choice
from overnight.tasks.infer.forked_worker import ForkedPreparingWorker, ForkedWorker
from overnight.tasks.infer.heavy_columns import drop_heavy
from overnight.tasks.infer.worker import Prepare, PreparingWorker, Worker
from overnight.tasks.resources.plan import TASK_RETRIES, Plan, Pool
from overnight.tasks.state.read_plan import read_block, read_summaries
from overnight.tasks.state.run import Run
from overnight.tasks.state.stream import Read, Steps, Stream
from overnight.tasks.workers.row_isolation import RowIsolation

MAX_RESTARTS = 16  # of a worker: a row that kills it does so three times, four in a large batch
LARGEST_BLOCK_BYTES = 32 * 2**20  # keeps memory small and lets the model start early; Ray Data's is four times as much


def is_read_by_workers(run: Run, plan: Plan) -> bool:
    """Whether the first model's workers read and preprocess their own rows.

    Not where a file is many rows: it may be too large for one worker, and rows are light to hand on.
    """
    if not (plan.is_beside and read_summaries(run.order)):
        return False
    counts = read_block(run.order, 0)["rows"]
    return counts.null_count == 0 and bool((counts.to_numpy() == 1).all())


def context(largest_block_bytes: float = LARGEST_BLOCK_BYTES) -> Any:
    """The settings of Ray Data under which a stream is built and run."""
    made = ray.data.DataContext.get_current().copy()
    made.target_max_block_size = int(largest_block_bytes)
    made.raise_original_map_exception = True  # wrapped, an error loses its cause on its way to the driver
    made.enable_progress_bars = False
    return made


def read_rows(run: Run, stream: Stream, plan: Plan) -> ray.data.Dataset:
    """The pending rows by Ray tasks, in reading order or mixed."""
    dataset = ray.data.read_datasource(
        stream.datasource(run=run),
        override_num_blocks=1,  # no splitting of blocks behind the read
        num_cpus=plan.task_cpus,
        concurrency=plan.task_concurrency,
        ray_remote_args={"max_retries": TASK_RETRIES},
    )
    if stream.seed is None:
        return dataset
    mixed = dataset.random_shuffle(seed=stream.seed, num_cpus=plan.task_cpus)
    mixed.context.execution_options.preserve_order = True  # else the seed mixes blocks in order of arrival
    return mixed


def read_numbers(run: Run) -> ray.data.Dataset:
    """The numbers of the reading order's blocks, for workers that read their own rows."""
    numbers = [{"block": block} for block in range(len(read_summaries(run.order)))]
    return ray.data.from_items(numbers, override_num_blocks=len(numbers))  # unlike from_arrow, without a Ray task


def prepare_rows(dataset: ray.data.Dataset, run: Run, steps: Steps, plan: Plan) -> ray.data.Dataset:
    """The rows after every step, by Ray tasks beside the read; where the workers were to do it, on CPUs they leave."""
    return dataset.map_batches(
        partial(steps, run=run),
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=1 if plan.is_beside else plan.task_cpus,
        concurrency=None if plan.is_beside else plan.task_concurrency,
        max_retries=TASK_RETRIES,
    )


def worker_preparation(run: Run, stream: Stream, reads: bool) -> Prepare | None:
    """What a worker does before its model; None where that is nothing. reads: its input is of `read_numbers`."""
    steps = stream.steps and partial(stream.steps, run=run)
    return partial(_read_and_prepare, run=run, read=partial(stream.read, run=run), steps=steps) if reads else steps


def _read_and_prepare(
    numbers: pa.Table, run: Run, read: Read, steps: Steps | None, isolation: RowIsolation | None = None
) -> Iterator[pa.Table]:
    for number in numbers["block"].to_pylist():
        for block in read(read_block(run.order, number)):
            yield from steps(block, isolation=isolation) if steps else (block,)


def without_heavy(dataset: ray.data.Dataset, plan: Plan, keep: list[str], bytes_stay: bool) -> ray.data.Dataset:
    """The rows of a job without a model, without their heavy columns but those that `keep` names."""
    return dataset.map_batches(
        drop_heavy,
        fn_kwargs={"keep": keep, "bytes_stay": bytes_stay},
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=plan.task_cpus,
        concurrency=plan.task_concurrency,
        max_retries=TASK_RETRIES,  # as reading and preprocessing, which it is then fused with
    )


def infer_rows(dataset: ray.data.Dataset, run: Run, choice: Choice, settings: dict[str, Any]) -> ray.data.Dataset:
    """The rows with one model's columns; `settings` are the rest of what its workers are made with."""
    trial, pool = choice.trial, choice.pool
    return dataset.map_batches(
        _worker(is_forked(choice.used, pool), "prepare" in settings),
        fn_constructor_kwargs={
            "predictor": choice.used,
            "run": run,
            "pace": trial.seconds_a_row if trial else 0.0,
            "columns": trial.columns if trial else None,
            **settings,
        },
        batch_size=choice.at_once,
        batch_format="pyarrow",
        compute=strategy(pool, choice.used.calls_at_once()),
        max_restarts=MAX_RESTARTS,
        max_task_retries=MAX_RESTARTS,
        **pool.remote_arguments(),
    )


def _worker(is_forked: bool, prepares: bool) -> type:
    if is_forked:
        return ForkedPreparingWorker if prepares else ForkedWorker
    return PreparingWorker if prepares else Worker


def strategy(pool: Pool, calls_at_once: int) -> ray.data.ActorPoolStrategy:
    """The pool for Ray Data, whose workers have so many calls under way, each in a thread of its own."""
    sizes = {"min_size": pool.minimum, "max_size": pool.maximum, "initial_size": pool.initial}
    if calls_at_once == 1:
        return ray.data.ActorPoolStrategy(**sizes)
    return ray.data.ActorPoolStrategy(
        **sizes,
        max_concurrent_calls_per_actor=calls_at_once,
        max_tasks_in_flight_per_actor=2 * calls_at_once,
        enable_true_multi_threading=True,
    )
