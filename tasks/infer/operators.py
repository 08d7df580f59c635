"""The stream as operators of Ray Data: read, shuffle, preprocess, infer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import ray.data

from overnight.tasks.infer.autotune.worker_sizing import Choice
from overnight.tasks.infer.heavy_columns import drop_heavy
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.worker import PassOn, Prepare
from overnight.tasks.infer.worker_process import PreparingWorkerProcess, WorkerProcess
from overnight.tasks.resources.plan import TASK_RETRIES, Plan, Pool
from overnight.tasks.rows.passing_on import LARGEST_BLOCK_BYTES, passed_on
from overnight.tasks.state.read_plan import read_block, read_summaries
from overnight.tasks.state.run import Run
from overnight.tasks.state.stream import OperatorNames, Read, Steps, Stream
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.row_isolation import RowIsolation

MAX_RESTARTS = 16  # of a worker: a row that kills it does so three times, four in a large batch


def is_read_by_workers(run: Run, plan: Plan) -> bool:
    """Return True if the first model's workers read and preprocess their own rows.

    They do if `plan` lets them preprocess, and each of the first files has only one row. A file of several rows may be
    too large for one worker, and its rows are cheap to pass on.
    """
    if not (plan.is_beside and read_summaries(run.order)):
        return False
    counts = read_block(run.order, 0)["rows"]
    return counts.null_count == 0 and bool((counts.to_numpy() == 1).all())


def context(largest_block_bytes: float = LARGEST_BLOCK_BYTES) -> Any:
    """Return a copy of Ray Data's settings, changed for building and running a stream.

    Ray Data passes on a block when it has `largest_block_bytes`.
    """
    made = ray.data.DataContext.get_current().copy()
    made.target_max_block_size = int(largest_block_bytes)
    made.raise_original_map_exception = True  # wrapped, an error loses its cause on its way to the driver
    made.enable_progress_bars = False
    return made


def read_rows(run: Run, stream: Stream, plan: Plan) -> ray.data.Dataset:
    """Return the dataset of all rows that are not settled yet, which Ray tasks read.

    The rows are in reading order, or shuffled if the stream has a seed.
    """
    dataset = ray.data.read_datasource(
        stream.datasource(run=run),
        override_num_blocks=1,  # no splitting of blocks after the read
        num_cpus=plan.task_cpus,
        concurrency=plan.task_concurrency,
        ray_remote_args={"max_retries": TASK_RETRIES},
    )
    if stream.seed is None:
        return dataset
    mixed = dataset.random_shuffle(seed=stream.seed, num_cpus=plan.task_cpus)
    mixed.context.execution_options.preserve_order = True  # otherwise the seed mixes blocks in order of arrival
    return mixed


def read_numbers(run: Run) -> ray.data.Dataset:
    """Return a dataset of the numbers of the blocks to read (column `block`), for workers that read their own rows."""
    numbers = [{"block": block} for block in range(len(read_summaries(run.order)))]
    return ray.data.from_items(numbers, override_num_blocks=len(numbers))  # unlike from_arrow, without a Ray task


def prepare_rows(
    dataset: ray.data.Dataset, run: Run, steps: Steps | None, plan: Plan, pass_on: PassOn = iter
) -> ray.data.Dataset:
    """Return the dataset after `steps`, which run in Ray tasks. Without steps, the tasks only pass rows on.

    `pass_on` takes the blocks of a task, and yields the blocks that the task returns. A task reserves `plan.task_cpus`.
    If `plan` intended the model's workers to run the steps (`is_beside`), it reserves one CPU instead, because these
    workers then leave whole CPUs free.
    """
    if not steps:
        return _by_tasks(dataset, partial(_passed, pass_on=pass_on), plan)
    return dataset.map_batches(
        partial(run_steps_in_task, run=run, steps=steps, pass_on=pass_on),
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=1 if plan.is_beside else plan.task_cpus,
        compute=ray.data.TaskPoolStrategy(None if plan.is_beside else plan.task_concurrency),
        max_retries=TASK_RETRIES,
    )


def run_steps_in_task(block: pa.Table, run: Run, steps: Steps, pass_on: PassOn) -> Iterator[pa.Table]:
    """Run all steps on `block`, and yield the results after `pass_on`."""
    return pass_on(steps(block, run=run))


def _passed(block: pa.Table, pass_on: PassOn) -> Iterator[pa.Table]:
    return pass_on([block])


def worker_preparation(run: Run, stream: Stream, reads: bool) -> Prepare | None:
    """Return the function that a worker runs on its input before the model, or None if nothing is to do.

    The input is a block of rows, which the function preprocesses. If `reads` is True, the input is a block number from
    `read_numbers`, and the function also reads the rows.
    """
    prepare = stream.steps and partial(_prepare, run=run, steps=stream.steps)
    return partial(_read_and_prepare, run=run, read=stream.read, prepare=prepare) if reads else prepare


def _read_and_prepare(
    numbers: pa.Table, run: Run, read: Read, prepare: Prepare | None, isolation: RowIsolation | None = None
) -> Iterator[pa.Table]:
    for number in numbers["block"].to_pylist():
        for block in _counted(read(read_block(run.order, number), run=run), run, "ingest", (number, 0)):
            yield from prepare(block, isolation=isolation) if prepare else (block,)


def _prepare(block: pa.Table, run: Run, steps: Steps, isolation: RowIsolation | None = None) -> Iterator[pa.Table]:
    first = (block["__unit"][0].as_py(), block["__row"][0].as_py()) if len(block) else (-1, -1)
    return _counted(steps(block, run=run, isolation=isolation), run, "preprocess", first)


def _counted(pieces: Iterable[pa.Table], run: Run, stage: str, first: tuple[int, int]) -> Iterator[pa.Table]:
    """Yield the blocks `pieces`, and report how many rows of them have passed `stage` inside a worker.

    Progress would otherwise count all stages of the worker as one, as Ray Data does. `first` identifies the input of
    the stage, so that work that is done again counts once.
    """
    rows = 0
    for piece in pieces:
        rows += len(piece)
        supervisor.emit(run, supervisor.RowsPassed(run.attempt, stage, first, rows))
        yield piece


def without_heavy(
    pieces: Iterable[pa.Table], keep: Sequence[str], bytes_stay: bool, longest: float
) -> Iterator[pa.Table]:
    """Yield the blocks `pieces` of a job without models, without the heavy columns that are not published.

    These are columns of bytes and arrays of two or more dimensions, except those in `keep`. If `bytes_stay` is True,
    columns of bytes stay, too. A row waits at most about `longest` seconds until Ray Data passes it on.
    """
    light = (drop_heavy(piece, keep, bytes_stay) for piece in pieces)
    return passed_on(light, LARGEST_BLOCK_BYTES, longest)


def infer_rows(
    dataset: ray.data.Dataset,
    run: Run,
    choice: Choice,
    plan: Plan,
    is_slow: bool,
    pass_on: PassOn,
    prepare: Prepare | None,
) -> ray.data.Dataset:
    """Return the dataset after one link: with its model's columns, and after its steps.

    The steps run in the model's workers, so that no row crosses from one process to another. If the model runs on a
    device, they run in Ray tasks, so that the device does not wait for them.

    If `is_slow`, workers pass on each result immediately, otherwise several together. `pass_on` takes the blocks of a
    task, and yields the blocks that the task returns. `prepare` is what the workers do before the model, or None.
    """
    trial, pool, link = choice.trial, choice.pool, choice.used_link
    apart = link.steps if choice.used.accelerators() else None
    settings: dict[str, Any] = {"prepare": prepare} if prepare else {}
    if choice.loaded_in:
        settings["loaded_in"] = choice.loaded_in
    dataset = dataset.map_batches(
        PreparingWorkerProcess if prepare else WorkerProcess,
        fn_constructor_kwargs={
            "link": replace(link, steps=None, read=None) if apart else link,
            "run": run,
            "pace": trial.seconds_a_row if trial else 0.0,
            "columns": trial.columns if trial else None,
            "is_slow": is_slow,
            "pass_on": pass_on,
            **settings,
        },
        batch_size=choice.at_once,
        batch_format="pyarrow",
        compute=strategy(pool, choice.used.calls_at_once()),
        max_restarts=MAX_RESTARTS,
        max_task_retries=MAX_RESTARTS,
        **pool.remote_arguments(),
    )
    if apart:
        made = [link.prefix + name for name in trial.columns.names] if trial else []
        behind = partial(steps_behind_model, steps=apart, link=link, run=run, made=made, pass_on=pass_on)
        dataset = _by_tasks(dataset, behind, plan)
    return dataset


def steps_behind_model(
    block: pa.Table, steps: Steps, link: Link, run: Run, made: Sequence[str], pass_on: PassOn
) -> Iterator[pa.Table]:
    """Run the steps of `link` on `block`. Return the rows without heavy columns that nothing after the link reads.

    Columns of bytes, and of arrays of two or more dimensions, are heavy. `made` names the model's columns as the trial
    showed them. They stay, and so do columns that begin with the link's prefix. If the trial showed none and there is
    no prefix, the model's heavy columns are not recognized and are dropped. `pass_on` is as in `infer_rows`.
    """
    earlier = (*link.earlier, *([link.prefix] if link.prefix else []))
    pieces = steps(block, run=run)
    if link.read is not None:
        read = [*link.read, *made]
        pieces = (drop_heavy(piece, read, link.bytes_stay, earlier) for piece in pieces)
    return pass_on(pieces)


def _by_tasks(dataset: ray.data.Dataset, work: Callable[..., Any], plan: Plan) -> ray.data.Dataset:
    return dataset.map_batches(
        work,
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=plan.task_cpus,
        compute=ray.data.TaskPoolStrategy(plan.task_concurrency),
        max_retries=TASK_RETRIES,  # as reading and preprocessing, with which Ray Data may fuse it
    )


def names_by_stage() -> OperatorNames:
    """Return by which part of its name the progress of a stream recognizes an operator of this module.

    Ray Data names an operator after its function or class, and a read begins with `Read`.
    """
    preparing = PreparingWorkerProcess.__name__
    return {
        "ingest": ("Read", preparing),
        "preprocess": (run_steps_in_task.__name__, preparing),
        "infer": (WorkerProcess.__name__, steps_behind_model.__name__),
    }


def strategy(pool: Pool, calls_at_once: int) -> ray.data.ActorPoolStrategy:
    """Return the strategy by which Ray Data starts and scales the workers of `pool`.

    A worker runs up to `calls_at_once` calls concurrently, each in a thread of its own.
    """
    sizes = {"min_size": pool.minimum, "max_size": pool.maximum, "initial_size": pool.initial}
    if calls_at_once == 1:
        return ray.data.ActorPoolStrategy(**sizes)
    return ray.data.ActorPoolStrategy(
        **sizes,
        max_concurrent_calls_per_actor=calls_at_once,
        max_tasks_in_flight_per_actor=2 * calls_at_once,
        enable_true_multi_threading=True,
    )
