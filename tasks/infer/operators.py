"""Place the stages of a stream on Ray: cut them into segments, and run each segment as an operator of Ray Data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import ray.data

from overnight.tasks.engine.datasource import OrderedRead
from overnight.tasks.engine.passing_on import LARGEST_BLOCK_BYTES
from overnight.tasks.engine.segment import PassOn, Segment, run_in_task
from overnight.tasks.engine.stage import Stage
from overnight.tasks.engine.stream import OperatorNames, Stream
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.worker_process import WorkerProcess, calls_at_once
from overnight.tasks.infer.worker_sizing import Choice
from overnight.tasks.resources.plan import TASK_RETRIES, Plan, Pool
from overnight.tasks.state.read_plan import read_block, read_summaries
from overnight.tasks.state.run import Run

MAX_RESTARTS = 16  # of a worker: a row that kills it does so three times, four in a large batch


@dataclass(frozen=True)
class TaskSegment(Segment):
    """A segment that Ray tasks run. A task reserves `cpus`; `most` tasks run at a time, any number if it is None."""

    cpus: float = 1
    most: int | None = None


@dataclass(frozen=True)
class ModelSegment(Segment):
    """A segment that the workers of a model run, with what was chosen for the model. Its last stage is the model."""

    choice: Choice | None = None

    def for_process(self) -> Segment:
        """Return the segment as the model's process gets it, which imports no Ray then."""
        return Segment(self.stages, self.pass_on, self.is_slow)


@dataclass(frozen=True)
class Placement:
    """Which stages before the first model run in its workers; the others run in Ray tasks."""

    prepared_by_workers: bool = False
    read_by_workers: bool = False


def placement(run: Run, plan: Plan, choices: Sequence[Choice]) -> Placement:
    """Return where the stages before the first model run: its workers need memory for one on each CPU."""
    if not (choices and plan.is_colocated and choices[0].pool.maximum == plan.pools[0].maximum):
        return Placement()
    return Placement(True, may_workers_read(run, plan))


def may_workers_read(run: Run, plan: Plan) -> bool:
    """Return True if the first files have one row each: larger ones may be too large for one worker."""
    if not (plan.is_colocated and read_summaries(run.order)):
        return False
    counts = read_block(run.order, 0)["rows"]
    return counts.null_count == 0 and bool((counts.to_numpy() == 1).all())


def place(
    stream: Stream, choices: Sequence[Choice], plan: Plan, placement: Placement, pass_on: PassOn
) -> list[TaskSegment | ModelSegment]:
    """Cut the stages of a job into segments, each for the processes that run it."""
    steps: tuple[Stage, ...] = (stream.steps,) if stream.steps else ()
    before: tuple[Stage, ...] = ()  # in the workers of the first model
    if placement.prepared_by_workers:
        before, steps = steps, ()
    segments: list[TaskSegment | ModelSegment] = []
    if placement.read_by_workers:
        before = (stream.read, *before)
    else:
        segments = [in_tasks((stream.read,), plan), prepare(steps, plan, pass_on)]
    is_slow = any(choice.rows_a_block for choice in choices)
    for choice, later in zip_longest(choices, choices[1:]):
        link, steps_behind = choice.tried_link, None
        if link.model.accelerators() and not (later and later.link.shares_engine):
            link, steps_behind = link.cut()  # so that the device does not wait for the steps
        if link.shares_engine:
            segments[-1] = _with_model(segments[-1], link, choice)
        else:
            segments.append(ModelSegment((*before, link), pass_on, is_slow, choice))
        if steps_behind:
            segments.append(in_tasks((steps_behind,), plan, pass_on))
        before = ()
    return segments


def _with_model(segment: TaskSegment | ModelSegment, link: Link, choice: Choice) -> ModelSegment:
    """Return the segment with one more model, which the engine of its first model answers."""
    assert isinstance(segment, ModelSegment)
    assert segment.choice
    first = replace(segment.choice, loaded_in=segment.choice.loaded_in or choice.loaded_in)
    return replace(segment, stages=(*segment.stages, link), choice=first)


def prepare(steps: tuple[Stage, ...], plan: Plan, pass_on: PassOn = iter) -> TaskSegment:
    """Return the segment of the stages between the read and the first model, in Ray tasks; it may have none."""
    if steps and plan.is_colocated:  # the model's workers should have run them, so CPUs are free
        return TaskSegment(steps, pass_on, cpus=1)
    return in_tasks(steps, plan, pass_on)


def in_tasks(stages: tuple[Stage, ...], plan: Plan, pass_on: PassOn = iter) -> TaskSegment:
    """Return the segment of these stages in as many Ray tasks as `plan` allows."""
    return TaskSegment(stages, pass_on, cpus=plan.task_cpus, most=plan.task_concurrency)


def context(largest_block_bytes: float = LARGEST_BLOCK_BYTES) -> Any:
    """Return Ray Data's settings for a stream. Ray Data passes on a block when it has `largest_block_bytes`."""
    settings = ray.data.DataContext.get_current().copy()
    settings.target_max_block_size = int(largest_block_bytes)
    settings.raise_original_map_exception = True  # wrapped, an error loses its cause on its way to the driver
    settings.enable_progress_bars = False
    return settings


def on_ray(run: Run, segments: Sequence[TaskSegment | ModelSegment], seed: int | None = None) -> ray.data.Dataset:
    """Return the lazy dataset of the rows after all segments, shuffled if there is a `seed`."""
    dataset: ray.data.Dataset | None = None
    for segment in segments:
        if isinstance(segment, ModelSegment):
            if dataset is None:  # the workers read the blocks of these numbers
                numbers = [{"block": block} for block in range(len(read_summaries(run.order)))]
                # unlike from_arrow, without a Ray task
                dataset = ray.data.from_items(numbers, override_num_blocks=len(numbers))
            dataset = _by_workers(dataset, run, segment)
        else:
            dataset = _by_tasks(dataset, run, segment) if dataset else _read(run, segment, seed)
    assert dataset
    return dataset


def names_by_stage(segments: Sequence[Segment]) -> OperatorNames:
    """Return by which parts of their names progress recognizes the operators: each counts for all of its stages."""
    names: dict[str, list[str]] = {"ingest": ["Read"]}  # Ray Data's own read
    for segment in segments:
        for stage in segment.stages:
            names.setdefault(stage.counts_as, []).append(f"({segment.name})")
    return names


def _read(run: Run, segment: TaskSegment, seed: int | None) -> ray.data.Dataset:
    [read] = segment.stages
    dataset = ray.data.read_datasource(
        OrderedRead(read, run),
        override_num_blocks=1,  # no splitting of blocks after the read
        num_cpus=segment.cpus,
        concurrency=segment.most,
        ray_remote_args={"max_retries": TASK_RETRIES},
    )
    if seed is None:
        return dataset
    dataset = dataset.random_shuffle(seed=seed, num_cpus=segment.cpus)
    dataset.context.execution_options.preserve_order = True  # otherwise the seed mixes blocks in order of arrival
    return dataset


def _by_tasks(dataset: ray.data.Dataset, run: Run, segment: TaskSegment) -> ray.data.Dataset:
    def work(block: pa.Table) -> Any:
        return run_in_task(block, run, segment)

    work.__name__ = segment.name
    return dataset.map_batches(
        work,
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=segment.cpus,
        compute=ray.data.TaskPoolStrategy(segment.most),
        max_retries=TASK_RETRIES,  # as reading, with which Ray Data may fuse it
    )


def _by_workers(dataset: ray.data.Dataset, run: Run, segment: ModelSegment) -> ray.data.Dataset:
    choice = segment.choice
    assert choice
    return dataset.map_batches(
        type(segment.name, (WorkerProcess,), {}),
        fn_constructor_kwargs={"segment": segment.for_process(), "run": run, "loaded_in": choice.loaded_in},
        batch_size=choice.at_once,
        batch_format="pyarrow",
        compute=strategy(choice.pool, calls_at_once(segment)),
        max_restarts=MAX_RESTARTS,
        max_task_retries=MAX_RESTARTS,
        **choice.pool.remote_arguments(),
    )


def strategy(pool: Pool, calls_at_once: int) -> ray.data.ActorPoolStrategy:
    """Return the strategy by which Ray Data starts and scales the workers of `pool`, and their threads."""
    options: dict[str, Any] = {}
    if calls_at_once > 1:
        options = {
            "max_concurrent_calls_per_actor": calls_at_once,
            "max_tasks_in_flight_per_actor": 2 * calls_at_once,
            "enable_true_multi_threading": True,
        }
    return ray.data.ActorPoolStrategy(
        min_size=pool.minimum, max_size=pool.maximum, initial_size=pool.initial, **options
    )
