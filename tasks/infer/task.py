"""Infer: tries each model on a few rows, then runs the stream: read, prepare, infer, stage parts."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from overnight.tasks.infer.columns import columns_made, require_inputs
from overnight.tasks.infer.heavy_columns import heavy_columns
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Predictor
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
    "Inference",
    "Link",
    "begin_trials",
    "embed_image",
    "embed_text",
    "embedder",
    "infer",
]

BYTES_HANDED = 128 * 2**20  # to a model's worker at a time, unless one block has more
WAIT_SECONDS = 0.5  # Ray keeps a reservation for about a second after its task has ended
SECONDS_BETWEEN_WARNINGS = 60.0
ADVICE = "Correct the model; to refuse a row on purpose, raise overnight.extend.RowError."
SAMPLE_ROWS = 8  # a document's chunks or a video's frames are many more than a trial needs


@dataclass(frozen=True)
class Inference:
    """The work of `infer`: the models with their steps, and the plan by which they run.

    `keep` names heavy inputs that are published. `rows_per_part` is the job's limit of rows per task, if any. `trials`
    are from `begin_trials`.
    """

    links: list[Link]
    keep: list[str]
    rows_per_part: int | None
    plan: Plan
    trials: list[Any]


@task(
    name="infer",
    task_run_name="infer: read, prepare, infer, stage",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def infer(
    run: Run,
    inference: Inference,
    stage: Callable[[Run, ray.data.Dataset, Sampled], Streamed],
    stream: Stream,
) -> Streamed:
    """Run the stream: read rows, prepare them, run every model and its steps, and stage parts.

    Each try processes the rows that no staged part settles. `stage` runs a dataset.

    Raise `JobError` for a model that cannot be loaded, and `ContractError` for one that breaks its contract. Raise the
    error that stopped the stream, with its stage.
    """
    try:
        if (prefect.runtime.task_run.run_count or 1) > 1:
            run = run.as_new_attempt()
        if not run.order.exists():  # a later try, which has no early trial
            stream.plan_read(run)
            inference = replace(inference, trials=[None] * len(inference.links))
        if not inference.trials or not all(inference.trials):
            wait_until_free(inference.plan)
        dataset, sampled = _laid_out(run, inference, stream)
        return stage(run, dataset, sampled) if read_summaries(run.order) else Streamed(columns=sampled.columns)
    except Exception as error:
        raise explain(error, "infer") from None


def _laid_out(run: Run, inference: Inference, stream: Stream) -> tuple[ray.data.Dataset, Sampled]:
    """Return the lazy dataset of the rows after all models, which are tried first."""
    plan, keep, rows_per_part = inference.plan, inference.keep, inference.rows_per_part
    sample = _sample(stream.sample)
    size = _bytes_a_row(sample, keep, stream.bytes_stay)
    if not inference.links:
        count = rows_per_part or part_size.rows_per_part(None, size)
        with ray.data.DataContext.current(operators.context()):
            dataset = operators.read_rows(run, stream, plan)
            if stream.steps:
                dataset = operators.prepare_rows(dataset, run, stream.steps, plan)
            dataset = operators.without_heavy(
                dataset, run, plan, keep, stream.bytes_stay, Share(count, part_size.BYTES_A_PART)
            )
        return dataset, Sampled(columns_made(sample, [], keep, stream.bytes_stay), count)
    read_by_workers = operators.is_read_by_workers(run, plan)
    work = _work(run, sample, rows_per_part, read_by_workers)
    choices, failed, error = _chosen(run, inference, sample, work)
    in_workers = plan.is_beside and choices[0].pool.maximum == plan.pools[0].maximum  # enough for all the CPUs
    read_by_workers = read_by_workers and in_workers
    prepare = operators.worker_preparation(run, stream, read_by_workers) if in_workers else None
    slow = [choice.rows_a_block for choice in choices if choice.rows_a_block]
    largest = float(LARGEST_BLOCK_BYTES)
    if slow and len(sample):  # if workers read, only their output is blocks of rows
        largest = float(np.clip(min(slow) * (size if read_by_workers else sample.nbytes / len(sample)), 1, largest))
    trials = [choice.trial for choice in choices]
    seconds = stream_seconds_a_row(choices, work, prepare is not None)
    count = rows_per_part or part_size.rows_per_part(seconds, size + sum(map(_bytes_made, trials)))
    a_part = math.inf if rows_per_part else part_size.SECONDS_A_PART * sum(choice.pool.initial for choice in choices)
    takers = [
        *(Share(choice.at_once, BYTES_HANDED) for choice in choices[1:]),
        Share(count, part_size.BYTES_A_PART, a_part),
    ]
    with ray.data.DataContext.current(operators.context(largest)):
        dataset = operators.read_numbers(run) if read_by_workers else operators.read_rows(run, stream, plan)
        if stream.steps and not in_workers:
            dataset = operators.prepare_rows(dataset, run, stream.steps, plan)
        if not read_by_workers:
            first = Share(choices[0].at_once, BYTES_HANDED)
            dataset = operators.padded_rows(dataset, run, plan, first, bool(stream.steps) and not in_workers)
        for place, choice in enumerate(choices):
            infer_rows = partial(operators.infer_rows, share=takers[place], prepare=prepare if place == 0 else None)
            to = "write" if place == len(choices) - 1 else "infer"
            dataset = infer_rows(dataset, run, choice, plan, is_slow=bool(slow), to=to)
    _describe(run, explanation(plan, choices, sample, prepare is not None, read_by_workers))
    wait_until_free(plan)
    return dataset, Sampled(
        columns=columns_made(sample, trials, keep, stream.bytes_stay),
        rows_per_part=count,
        failed=failed,
        error=error,
    )


def _chosen(
    run: Run, inference: Inference, sample: pa.Table, work: Work
) -> tuple[list[Choice], tuple[str, pa.Table] | None, str | None]:
    """Return what each model runs with after its trial, and `failed` and `error` of `Sampled`.

    A model is tried on what those before it made of the sample.
    """
    choices: list[Choice] = []
    failed, error = None, None
    rows, is_whole = sample, True  # is_whole: the rows have the columns of all models so far
    plan = inference.plan
    for link, pool, trying in zip(inference.links, plan.pools, inference.trials, strict=True):
        if is_whole and len(rows):
            require_inputs(link, rows)
        each = blocks.rows_each(rows)
        found = tried(run, link, pool, rebatch.first_rows(rows, SAMPLE_ROWS), work.rows * each, trying)
        trial = found if isinstance(found, Trial) else None
        choices.append(choose(link, pool, trial, plan, work, each))
        if isinstance(found, Failed) and is_whole and not link.model.where:
            told = _warned(run, link.model, found)
            failed, error = (told, found.block), f"{told} {ADVICE}" if found.is_the_models else None
        rows, is_whole = (trial.behind, is_whole) if trial else (rows, False)
    return choices, failed, error


def _warned(run: Run, model: Predictor, failed: Failed) -> str:
    """Report a model that failed for every row of its trial; return the sentence, for the receipt."""
    told = f"{model.shown_name()}: {failed}."
    supervisor.report(run, "infer", told)
    get_run_logger().warning(told)
    return told


def _work(run: Run, sample: pa.Table, rows_per_part: int | None, read_by_workers: bool) -> Work:
    summaries = read_summaries(run.order)
    return Work(
        rows=sum(math.inf if count is None else count for count, _ in summaries),
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
        return blocks.live_block(pa.ipc.open_file(file.read()).read_all())


def _bytes_a_row(sample: pa.Table, keep: Sequence[str], bytes_stay: bool) -> float:
    """Return the bytes of a source row of the sample after the models.

    The models' columns are still unknown and do not count.
    """
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
