"""Infer: tries each model on a few rows, then runs the stream: read, prepare, infer, stage parts."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import prefect.runtime
import pyarrow as pa
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from overnight.tasks.artifacts import artifact_key, dispensable, markdown_table
from overnight.tasks.engine.passing_on import LARGEST_BLOCK_BYTES, PartSize, passed_on
from overnight.tasks.engine.stream import Sampled, Stager, Stream, Streamed
from overnight.tasks.errors import explain
from overnight.tasks.infer.autotune.plan_summary import explanation
from overnight.tasks.infer.autotune.trial import Failed, Trial
from overnight.tasks.infer.autotune.trial_runner import begin_trials, end_on_device, released, try_model
from overnight.tasks.infer.autotune.worker_sizing import Choice, Work, choose
from overnight.tasks.infer.columns import columns_made, require_inputs, warnings_of_replaced
from overnight.tasks.infer.heavy_columns import drop_heavy
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.infer.query_embedding import Embedder, embed_image, embed_text, embedder
from overnight.tasks.infer.sample import bytes_a_row, read_sample
from overnight.tasks.resources.plan import Plan
from overnight.tasks.resources.waiting import wait_until_free
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.sample_table import markdown, predictions_beside_inputs
from overnight.tasks.state.read_plan import read_summaries
from overnight.tasks.state.run import Run
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

ADVICE = "Correct the model; to refuse a row on purpose, raise overnight.extend.RowError."
SAMPLE_ROWS = 8  # a document's chunks or a video's frames are many more than a trial needs


@dataclass(frozen=True)
class Inference:
    """The models that `infer` runs, with their steps and the plan for them.

    `part_size` is the job's setting for staged parts; if it sets a number of rows, a Ray task has no more rows.
    `trials` has one element per link: the process that already loads its model, from `begin_trials`, or None.
    """

    links: list[Link]
    part_size: PartSize
    plan: Plan
    trials: list[Any]


@task(
    name="infer",
    task_run_name="infer: read, prepare, infer, stage",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def infer(run: Run, inference: Inference, stager: Stager, stream: Stream) -> State[Streamed]:
    """Run the stream: read rows, prepare them, run every model and its steps, and stage parts.

    Return a completed state with the result of `stager`, which runs the dataset and writes its rows as parts. Each try
    processes only the rows that no staged part settles.

    Raise `JobError` for a model that cannot be loaded. Raise `ContractError` for a model that lacks an input column, or
    whose result is not valid. Raise any other error that stopped the stream, with its stage.
    """
    from overnight.tasks.infer.first_reading import decide_duplicates  # imports Ray Data

    try:
        if (prefect.runtime.task_run.run_count or 1) > 1:
            run = run.as_new_attempt()
        if not run.order.exists():  # a later try, which has no early trial
            stream.plan_read(run)
            inference = replace(inference, trials=[None] * len(inference.links))
        if not inference.trials or not all(inference.trials):
            wait_until_free(inference.plan, run.busy_timeout_seconds, get_run_logger().warning)
        for sentence in decide_duplicates(run, stream, inference.plan):
            get_run_logger().info(sentence)
        tried = _tried(run, inference, stream)
        streamed = Streamed(columns=tried.sampled.columns)
        if read_summaries(run.order):
            streamed = _staged(run, inference, stager, stream, tried)
        streamed.warnings += tuple(warning for link in inference.links for warning in link.model.warnings())
        streamed.warnings += supervisor.snapshot(run).warnings
        return Completed(message=_streamed(run, streamed), data=streamed)
    except Exception as error:
        raise explain(error, "infer") from None


def _streamed(run: Run, streamed: Streamed) -> str:
    counts = [count for count, _ in read_summaries(run.order)]
    if not counts:
        return "no row was left to do"
    known = "" if None in counts else f"{sum(count or 0 for count in counts):,} "
    return f"{known}rows read, run through the models and staged in {streamed.seconds:,.1f} s"


@dataclass(frozen=True)
class _Tried:
    """What the trials of the models showed: the sample before them, a choice for each model, and facts for the sink."""

    sample: pa.Table
    choices: list[Choice]
    sampled: Sampled


def _tried(run: Run, inference: Inference, stream: Stream) -> _Tried:
    """Try the models on the sample, and show its rows."""
    assert stream.sample  # preprocess has written it
    sample, behind = read_sample(stream.sample), None
    chosen = _Chosen([])
    try:
        if inference.links:
            chosen = _chosen(run, inference, sample, _work(run, sample, inference))
            behind = chosen.behind
    finally:
        _show_preview(run, sample, behind)
    trials = [choice.trial for choice in chosen.choices]
    sampled = Sampled(
        columns=columns_made(sample, trials, run.keep_columns, stream.bytes_stay),
        failed=chosen.failed,
        error=chosen.error,
        warnings=tuple(warnings_of_replaced(sample, inference.links, trials)),
    )
    return _Tried(sample, chosen.choices, sampled)


def _staged(run: Run, inference: Inference, stager: Stager, stream: Stream, tried: _Tried) -> Streamed:
    """Place the stages on Ray, run them, and stage the rows."""
    import ray.data

    from overnight.tasks.infer import operators

    plan, choices, longest = inference.plan, tried.choices, inference.part_size.longest
    placed = operators.placement(run, plan, choices)
    largest = _largest_block(run, stream, tried, placed.read_by_workers)
    pass_on = partial(passed_on, full=largest, longest=longest)
    segments = operators.place(stream, choices, plan, placed, pass_on)
    if not choices:
        light = partial(without_heavy, keep=run.keep_columns, bytes_stay=stream.bytes_stay, longest=longest)
        segments[-1] = replace(segments[-1], pass_on=light)
    with ray.data.DataContext.current(operators.context(largest)):
        dataset = operators.on_ray(run, segments, stream.seed)
    if choices:
        prepares = placed.prepared_by_workers and (placed.read_by_workers or stream.steps is not None)
        _describe(run, explanation(plan, choices, tried.sample, prepares, placed.read_by_workers))
        _wait(run, plan, choices)
    return stager.stage(run, dataset, operators.names_by_stage(segments), tried.sampled)


def _wait(run: Run, plan: Plan, choices: list[Choice]) -> None:
    """Wait until the cluster has what `plan` reserves. Models that are loaded make room on devices of other runs."""

    def warn(missing: str) -> None:
        for choice in choices:
            end_on_device(choice.loaded_in)
        get_run_logger().warning(missing)

    wait_until_free(plan, run.busy_timeout_seconds, warn)


def _largest_block(run: Run, stream: Stream, tried: _Tried, read_by_workers: bool) -> int:
    """Return the bytes of a block with which Ray Data passes rows on: fewer for slow models."""
    slow = [choice.rows_a_block for choice in tried.choices if choice.rows_a_block]
    if not (slow and len(tried.sample)):
        return LARGEST_BLOCK_BYTES
    size = tried.sample.nbytes / len(tried.sample)
    if read_by_workers:  # only their output is blocks of rows
        size = bytes_a_row(tried.sample, run.keep_columns, stream.bytes_stay)
    return int(np.clip(min(slow) * size, 1, LARGEST_BLOCK_BYTES))


def without_heavy(
    pieces: Iterable[pa.Table], keep: Sequence[str], bytes_stay: bool, longest: float
) -> Iterator[pa.Table]:
    """Yield the blocks `pieces` of a job without models, without the heavy columns that are not published.

    A row waits at most about `longest` seconds until Ray Data passes it on.
    """
    light = (drop_heavy(piece, keep, bytes_stay) for piece in pieces)
    return passed_on(light, LARGEST_BLOCK_BYTES, longest)


@dataclass(frozen=True)
class _Chosen:
    """The choices for the models after their trials, and `failed` and `error` of `Sampled`.

    `behind` is the sample after all models, or None if a model passed no row.
    """

    choices: list[Choice]
    failed: tuple[str, pa.Table] | None = None
    error: str | None = None
    behind: pa.Table | None = None


def _chosen(run: Run, inference: Inference, sample: pa.Table, work: Work) -> _Chosen:
    """Try each model on the rows that the models before it passed, and choose how it runs."""
    choices: list[Choice] = []
    failed, error = None, None
    rows, is_whole = sample, True  # is_whole: the rows have the columns of all models so far
    plan = inference.plan
    for link, pool, trying in zip(inference.links, plan.pools, inference.trials, strict=True):
        if is_whole and len(rows):
            require_inputs(link, rows)
        each = blocks.rows_each(rows)
        first = rebatch.first_rows(rows, SAMPLE_ROWS)
        found = try_model(run, link, pool, first, trying, get_run_logger().warning)
        trial = found if isinstance(found, Trial) else None
        choices.append(choose(link, pool, trial, plan, work, each))
        if isinstance(found, Failed) and is_whole and not link.model.where:
            told = _warned(run, link.model, found)
            failed, error = (told, found.block), f"{told} {ADVICE}" if found.is_the_models else None
        rows, is_whole = (trial.behind, is_whole) if trial else (rows, False)
    # Only now, because a trial holds the devices of its model: no other trial may share their memory.
    choices = [replace(choice, loaded_in=released(choice.trial)) for choice in choices]
    return _Chosen(choices, failed, error, rows if is_whole else None)


def _warned(run: Run, model: Predictor, failed: Failed) -> str:
    """Report a model that failed for every row of its trial; return the sentence, for the receipt."""
    told = f"{model.shown_name()}: {failed}."
    supervisor.report(run, "infer", told)
    get_run_logger().warning(told)
    return told


def _work(run: Run, sample: pa.Table, inference: Inference) -> Work:
    from overnight.tasks.infer.operators import may_workers_read

    summaries = read_summaries(run.order)
    return Work(
        rows=sum(math.inf if count is None else count for count, _ in summaries),
        prepare_seconds=blocks.seconds_a_row(sample, "preprocess"),
        bytes_a_row=sample.nbytes / max(len(sample), 1),
        blocks=len(summaries) if may_workers_read(run, inference.plan) else None,
        rows_per_part=inference.part_size.rows,
    )


@dispensable()
def _show_preview(run: Run, sample: pa.Table, behind: pa.Table | None) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, "preview"),
        description=f"Rows of {run.job}/{run.partition}" + (", with the models' results" if behind is not None else ""),
        markdown=markdown(predictions_beside_inputs(sample, behind)),
    )


@dispensable()
def _describe(run: Run, explained: dict[str, Any]) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, "plan"),
        description=f"How {run.job}/{run.partition} is run, and why",
        markdown=markdown_table(explained),
    )
