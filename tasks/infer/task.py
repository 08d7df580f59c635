"""Infer: tries each model on a few rows, then runs the stream: read, prepare, infer, stage parts."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import prefect.runtime
import pyarrow as pa
import ray.data
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from overnight.tasks.artifacts import artifact_key, dispensable, markdown_table
from overnight.tasks.errors import explain
from overnight.tasks.infer import operators
from overnight.tasks.infer.autotune.plan_summary import explanation
from overnight.tasks.infer.autotune.trial import Failed, Trial
from overnight.tasks.infer.autotune.trial_runner import begin_trials, tried
from overnight.tasks.infer.autotune.worker_sizing import Choice, Work, choose, stream_seconds_a_row
from overnight.tasks.infer.columns import columns_made, columns_read
from overnight.tasks.infer.heavy_columns import heavy_columns
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.infer.query_embedding import Embedder, embed_image, embed_text, embedder
from overnight.tasks.resources.cluster import missing_now
from overnight.tasks.resources.plan import Plan
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.state.read_plan import read_summaries
from overnight.tasks.state.run import Run
from overnight.tasks.state.stream import Sampled, Stream, Streamed
from overnight.tasks.storage.location import Location
from overnight.tasks.workers import supervisor

__all__ = [
    "Embedder",
    "begin_trials",
    "embed_image",
    "embed_text",
    "embedder",
    "infer",
]

WAIT_SECONDS = 0.5  # Ray keeps a reservation for about a second after its task has ended
SECONDS_BETWEEN_WARNINGS = 60.0
SAMPLE_ROWS = 8  # a document's chunks or a video's frames are many more than a trial needs


@task(
    name="infer",
    task_run_name="infer: read, prepare, infer, stage",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def infer(
    run: Run,
    models: list[AnyPredictor],
    keep: list[str],
    rows_per_part: int | None,
    plan: Plan,
    begun: list[Any],
    stage: Callable[[Run, ray.data.Dataset, Sampled], Streamed],
    stream: Stream,
) -> Streamed:
    """Run the stream: read rows, prepare them, run every model and stage parts.

    Each try processes the rows that no staged part settles. `keep` names heavy inputs that are published.
    `rows_per_part` is the job's limit of rows per task, if any. `begun` is from `begin_trials`. `stage` runs a dataset.

    Raise `JobError` for a model that cannot be loaded, and `ContractError` for one that breaks its contract. Raise the
    error that stopped the stream, with its stage.
    """
    try:
        if (prefect.runtime.task_run.run_count or 1) > 1:
            run = run.as_new_attempt()
        if not run.order.exists():  # a later try, which has no early trial
            stream.plan_read(run)
            begun = [None] * len(models)
        if not begun or not all(begun):
            wait_until_free(plan)
        dataset, sampled = _laid_out(run, models, keep, rows_per_part, plan, begun, stream)
        return stage(run, dataset, sampled) if read_summaries(run.order) else Streamed(columns=sampled.columns)
    except Exception as error:
        raise explain(error, "infer") from None


def _laid_out(
    run: Run,
    models: list[AnyPredictor],
    keep: list[str],
    rows_per_part: int | None,
    plan: Plan,
    begun: list[Any],
    stream: Stream,
) -> tuple[ray.data.Dataset, Sampled]:
    """Return the lazy dataset of the rows after all models, which are tried first."""
    sample = _sample(stream.sample)
    size = _bytes_a_row(sample, keep, stream.bytes_stay)
    if not models:
        with ray.data.DataContext.current(operators.context()):
            dataset = operators.read_rows(run, stream, plan)
            if stream.steps:
                dataset = operators.prepare_rows(dataset, run, stream.steps, plan)
            dataset = operators.without_heavy(dataset, plan, keep, stream.bytes_stay)
        return dataset, Sampled(columns_made(sample, [], [], keep, stream.bytes_stay), bytes_per_row=size)
    read_by_workers = operators.is_read_by_workers(run, plan)
    work = _work(run, sample, rows_per_part, read_by_workers)
    choices, failed = _chosen(run, models, plan, sample, begun, work)
    in_workers = plan.is_beside and choices[0].pool.maximum == plan.pools[0].maximum  # enough for all the CPUs
    read_by_workers = read_by_workers and in_workers
    prepare = operators.worker_preparation(run, stream, read_by_workers) if in_workers else None
    slow = [choice.rows_a_block for choice in choices if choice.rows_a_block]
    largest = float(operators.LARGEST_BLOCK_BYTES)
    if slow and len(sample):  # if workers read, only their output is blocks of rows
        largest = float(np.clip(min(slow) * (size if read_by_workers else sample.nbytes / len(sample)), 1, largest))
    prefixes = [f"{model.name}_" if len(models) > 1 else "" for model in models]
    with ray.data.DataContext.current(operators.context(largest)):
        dataset = operators.read_numbers(run) if read_by_workers else operators.read_rows(run, stream, plan)
        if stream.steps and not in_workers:
            dataset = operators.prepare_rows(dataset, run, stream.steps, plan)
        for place, choice in enumerate(choices):
            read = columns_read(models[place + 1 :])
            settings: dict[str, Any] = {
                "prefix": prefixes[place],
                "drop_heavy": read is not None,
                "earlier": prefixes[:place],
                "keep": [*keep, *(read or [])],
                "bytes_stay": stream.bytes_stay,
                "is_slow": bool(slow),
            }
            is_first = place == 0 and prepare
            dataset = operators.infer_rows(dataset, run, choice, settings | ({"prepare": prepare} if is_first else {}))
    trials = [choice.trial for choice in choices]
    _describe(run, explanation(plan, choices, sample, prepare is not None, read_by_workers))
    wait_until_free(plan)
    return dataset, Sampled(
        columns=columns_made(sample, trials, prefixes, keep, stream.bytes_stay),
        seconds_per_row=stream_seconds_a_row(choices, work, prepare is not None),
        bytes_per_row=size,
        failed=failed,
    )


def _chosen(
    run: Run, models: list[AnyPredictor], plan: Plan, sample: pa.Table, begun: list[Any], work: Work
) -> tuple[list[Choice], tuple[str, pa.Table] | None]:
    """Return the settings of each model after its trial, and the message for a first one that failed for every row."""
    few = rebatch.first_rows(sample, SAMPLE_ROWS)
    found = [
        tried(run, model, pool, few, work.rows * work.each, trying)
        for model, pool, trying in zip(models, plan.pools, begun, strict=True)
    ]
    choices = [
        choose(model, pool, trial if isinstance(trial, Trial) else None, plan, work)
        for model, pool, trial in zip(models, plan.pools, found, strict=True)
    ]
    # Other models are tried on rows that lack the columns of earlier models, or that `where` would skip.
    if isinstance(first := found[0], Failed) and not models[0].where:
        return choices, (_warned(run, models[0], first), first.block)
    return choices, None


def _warned(run: Run, model: AnyPredictor, failed: Failed) -> str:
    """Report a model that failed for every row of its trial; return the sentence, for the receipt."""
    told = f"{model.shown_name()}: {failed}."
    supervisor.report(run, "infer", told)
    get_run_logger().warning(told)
    return told


def _work(run: Run, sample: pa.Table, rows_per_part: int | None, read_by_workers: bool) -> Work:
    summaries = read_summaries(run.order)
    return Work(
        rows=sum(math.inf if count is None else count for count, _ in summaries),
        each=blocks.rows_each(sample),
        prepare_seconds=blocks.seconds_a_row(sample, "preprocess"),
        blocks=len(summaries) if read_by_workers else None,
        rows_per_part=rows_per_part,
    )


def wait_until_free(plan: Plan) -> None:
    """Return as soon as the plan can start; log the missing resources while other runs use them."""
    next_warning = time.monotonic() + 3
    while missing := missing_now(plan):
        if time.monotonic() >= next_warning:
            get_run_logger().warning("waiting for %s", missing)
            next_warning += SECONDS_BETWEEN_WARNINGS
        time.sleep(WAIT_SECONDS)


def _sample(place: Location) -> pa.Table:
    """Return the live rows of the preprocessing trial."""
    with place.open() as file:
        sample = pa.ipc.open_file(file.read()).read_all()
    return sample.filter(pa.array(sample["__state"].to_numpy() == blocks.LIVE))


def _bytes_a_row(sample: pa.Table, keep: Sequence[str], bytes_stay: bool) -> float:
    """Return the bytes of a source row of the sample after the models.

    The models' columns are still unknown and do not count.
    """
    light = blocks.without(sample, sorted(heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)))
    return blocks.live_rows(light)[0].nbytes / len(sample) if len(sample) else 0.0


@dispensable()
def _describe(run: Run, explained: dict[str, Any]) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, "plan"),
        description=f"How {run.job}/{run.partition} is run, and why",
        markdown=markdown_table(explained),
    )
