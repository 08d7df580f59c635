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
from pyarrow import types

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
from overnight.tasks.rows import blocks, part_size, rebatch
from overnight.tasks.rows.padding import LARGEST_BLOCK_BYTES, Share
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

BYTES_HANDED = 128 * 2**20  # to a model's worker at once, unless one block has more
WAIT_SECONDS = 0.5  # Ray keeps a reservation for about a second after its task has ended
SECONDS_BETWEEN_WARNINGS = 60.0
ADVICE = "Correct the model; where it refuses a row on purpose, let it raise overnight.extend.RowError."
SAMPLE_ROWS = 8  # of a document's chunks or a video's frames there are many more than a trial needs


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
    """Run the stream: its rows are read, prepared, given to every model and staged in parts.

    Each try takes what no staged part settles. `keep` names heavy inputs that are published. rows_per_part: as the job
    asks, if it does: a worker is handed no more at once. begun: of `begin_trials`. stage: runs a dataset.

    Raises `JobError` for a model that cannot be loaded, `ContractError` for one that breaks its contract, and what
    stopped the stream, with the stage in which it happened.
    """
    try:
        if (prefect.runtime.task_run.run_count or 1) > 1:
            run = run.as_new_attempt()
        if not run.order.exists():  # a later try, to which no trial belongs that was begun early
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
    """The lazy dataset of the rows behind all models, which are tried first."""
    sample = _sample(stream.sample)
    size = _bytes_a_row(sample, keep, stream.bytes_stay)
    if not models:
        count = rows_per_part or part_size.rows_per_part(None, size)
        with ray.data.DataContext.current(operators.context()):
            dataset = operators.read_rows(run, stream, plan)
            if stream.steps:
                dataset = operators.prepare_rows(dataset, run, stream.steps, plan)
            dataset = operators.without_heavy(
                dataset, run, plan, keep, stream.bytes_stay, Share(count, part_size.BYTES_A_PART)
            )
        return dataset, Sampled(columns_made(sample, [], [], keep, stream.bytes_stay), count)
    read_by_workers = operators.is_read_by_workers(run, plan)
    work = _work(run, sample, rows_per_part, read_by_workers)
    choices, failed, error = _chosen(run, models, plan, sample, begun, work)
    in_workers = plan.is_beside and choices[0].pool.maximum == plan.pools[0].maximum  # enough for the CPUs there are
    read_by_workers = read_by_workers and in_workers
    prepare = operators.worker_preparation(run, stream, read_by_workers) if in_workers else None
    slow = [choice.rows_a_block for choice in choices if choice.rows_a_block]
    largest = float(LARGEST_BLOCK_BYTES)
    if slow and len(sample):  # where workers read, only what they hand on are blocks of rows
        largest = float(np.clip(min(slow) * (size if read_by_workers else sample.nbytes / len(sample)), 1, largest))
    trials = [choice.trial for choice in choices]
    seconds = stream_seconds_a_row(choices, work, prepare is not None)
    count = rows_per_part or part_size.rows_per_part(seconds, size + sum(map(_bytes_made, trials)))
    a_part = math.inf if rows_per_part else part_size.SECONDS_A_PART * sum(choice.pool.initial for choice in choices)
    takers = [
        *(Share(choice.at_once, BYTES_HANDED) for choice in choices[1:]),
        Share(count, part_size.BYTES_A_PART, a_part),
    ]
    prefixes = [f"{model.name}_" if len(models) > 1 else "" for model in models]
    with ray.data.DataContext.current(operators.context(largest)):
        dataset = operators.read_numbers(run) if read_by_workers else operators.read_rows(run, stream, plan)
        if stream.steps and not in_workers:
            dataset = operators.prepare_rows(dataset, run, stream.steps, plan)
        if not read_by_workers:
            first = Share(choices[0].at_once, BYTES_HANDED)
            dataset = operators.padded_rows(dataset, run, plan, first, bool(stream.steps) and not in_workers)
        for place, choice in enumerate(choices):
            read = columns_read(models[place + 1 :])
            settings: dict[str, Any] = {
                "prefix": prefixes[place],
                "drop_heavy": read is not None,
                "earlier": prefixes[:place],
                "keep": [*keep, *(read or [])],
                "bytes_stay": stream.bytes_stay,
                "is_slow": bool(slow),
                "share": takers[place],
                "to": "write" if place == len(choices) - 1 else "infer",
            }
            is_first = place == 0 and prepare
            dataset = operators.infer_rows(dataset, run, choice, settings | ({"prepare": prepare} if is_first else {}))
    _describe(run, explanation(plan, choices, sample, prepare is not None, read_by_workers))
    wait_until_free(plan)
    return dataset, Sampled(
        columns=columns_made(sample, trials, prefixes, keep, stream.bytes_stay),
        rows_per_part=count,
        failed=failed,
        error=error,
    )


def _chosen(
    run: Run, models: list[AnyPredictor], plan: Plan, sample: pa.Table, begun: list[Any], work: Work
) -> tuple[list[Choice], tuple[str, pa.Table] | None, str | None]:
    """What each model runs with, after its trial; and `failed` and `error` of `Sampled` for the first."""
    few = rebatch.first_rows(sample, SAMPLE_ROWS)
    found = [
        tried(run, model, pool, few, work.rows * work.each, trying)
        for model, pool, trying in zip(models, plan.pools, begun, strict=True)
    ]
    choices = [
        choose(model, pool, trial if isinstance(trial, Trial) else None, plan, work)
        for model, pool, trial in zip(models, plan.pools, found, strict=True)
    ]
    # Other models are tried on rows that lack the columns of those before, or that `where` would pass over.
    if isinstance(first := found[0], Failed) and not models[0].where:
        told = _warned(run, models[0], first)
        return choices, (told, first.block), f"{told} {ADVICE}" if first.is_the_models else None
    return choices, None, None


def _warned(run: Run, model: AnyPredictor, failed: Failed) -> str:
    """Tell of a model that failed for every row that it was tried on; return the sentence, for the receipt."""
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
    """Returns as soon as the plan can start; says what it waits for while others hold it."""
    next_warning = time.monotonic() + 3
    while missing := missing_now(plan):
        if time.monotonic() >= next_warning:
            get_run_logger().warning("waiting for %s", missing)
            next_warning += SECONDS_BETWEEN_WARNINGS
        time.sleep(WAIT_SECONDS)


def _sample(place: Location) -> pa.Table:
    """The live ones of the rows that preprocessing tried."""
    with place.open() as file:
        sample = pa.ipc.open_file(file.read()).read_all()
    return sample.filter(pa.array(sample["__state"].to_numpy() == blocks.LIVE))


def _bytes_a_row(sample: pa.Table, keep: Sequence[str], bytes_stay: bool) -> float:
    """Bytes that a source row of the sample takes behind the models, without their columns, which are not known yet."""
    light = blocks.without(sample, sorted(heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)))
    return blocks.live_rows(light)[0].nbytes / len(sample) if len(sample) else 0.0


def _bytes_made(trial: Trial | None) -> float:
    """Bytes that a model adds to a row in columns of a fixed width, such as embeddings."""
    lists = [field.type for field in trial.columns if types.is_fixed_size_list(field.type)] if trial else []
    return sum(kind.list_size * kind.value_type.bit_width / 8 for kind in lists if types.is_primitive(kind.value_type))


@dispensable()
def _describe(run: Run, explained: dict[str, Any]) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, "plan"),
        description=f"How {run.job}/{run.partition} is run, and why",
        markdown=markdown_table(explained),
    )
