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
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import State
from prefect.states import Completed

from overnight.tasks.artifacts import artifact_key, create_listed, dispensable, markdown_table
from overnight.tasks.engine.passing_on import LARGEST_BLOCK_BYTES, PartSize, passed_on
from overnight.tasks.engine.stream import Sampled, Stager, Stream, Streamed
from overnight.tasks.errors import explain
from overnight.tasks.infer.batch.filling import Filling
from overnight.tasks.infer.batch.parts import Parts
from overnight.tasks.infer.batch.records import Clock
from overnight.tasks.infer.batch.sealing import Requests, batched, filling_of, forsaken, seal
from overnight.tasks.infer.link import Link, drop_heavy
from overnight.tasks.infer.query_embedding import Embedder, embed_image, embed_text, embedder, has_settings
from overnight.tasks.infer.spending import begin_spending
from overnight.tasks.infer.trial import (
    Failed,
    Trial,
    bytes_a_row,
    columns_made,
    read_sample,
    require_inputs,
    warnings_of_replaced,
)
from overnight.tasks.infer.trial_runner import begin_trials, end_on_device, pools_of, released, try_model
from overnight.tasks.infer.worker_sizing import Choice, Work, choose, explanation
from overnight.tasks.resources.plan import Plan
from overnight.tasks.resources.waiting import wait_until_free
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.sample_table import markdown, predictions_beside_inputs
from overnight.tasks.state.read_plan import read_summaries
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor

__all__ = [
    "Clock",
    "Embedder",
    "Filling",
    "Inference",
    "Link",
    "batched",
    "begin_trials",
    "embed_image",
    "embed_text",
    "embedder",
    "filling_of",
    "forsaken",
    "has_settings",
    "infer",
    "seal_requests",
]

ADVICE = "Correct the model; to refuse a row on purpose, raise overnight.extend.RowError."
SAMPLE_ROWS = 8  # a document's chunks or a video's frames are many more than a trial needs


@dataclass(frozen=True)
class Inference:
    """The models that `infer` runs, with their steps and the plan for them."""

    links: list[Link]
    part_size: PartSize  # of staging; if it sets a number of rows, a Ray task has no more
    plan: Plan
    processes: list[Any]  # from `begin_trials`, for each link the one that already loads its model, or None


@dataclass(frozen=True)
class Trials:
    """The results of the models' trials, with the sample before the first model.

    `behind` is the sample after all models, or None if a model passed no row.
    """

    sample: pa.Table
    choices: list[Choice]
    behind: pa.Table | None
    failure: tuple[str, pa.Table] | None = None  # `Sampled.failed`
    error: str | None = None


@task(
    name="infer",
    task_run_name="infer: read, prepare, infer, stage",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def infer(run: Run, inference: Inference, stager: Stager, stream: Stream) -> State[Streamed]:
    """Run the stream over the rows that no staged part settles: read, prepare, run every model, and stage parts."""
    from overnight.tasks.infer.first_reading import pass_barriers  # imports Ray Data

    try:
        if (prefect.runtime.task_run.run_count or 1) > 1:
            run = run.as_new_attempt()
        begin_spending(run, [link.model for link in inference.links])
        if not run.order.exists():  # a later try, which has no early trial
            stream.plan_read(run)
            inference = replace(inference, processes=[None] * len(inference.links))
        if not inference.processes or not all(inference.processes):
            wait_until_free(inference.plan, run.busy_timeout_seconds, get_run_logger().warning)
        for sentence in pass_barriers(run, stream, inference.plan):
            get_run_logger().info(sentence)
        trials = _try_models(run, inference, stream)
        facts = _facts(run, inference, stream, trials)
        result = Streamed(columns=facts.columns)
        if read_summaries(run.order):
            result = _stage(run, inference, stager, stream, trials, facts)
        for link in inference.links:
            result.warnings += tuple(link.model.warnings())
        result.warnings += supervisor.snapshot(run).warnings
        return Completed(message=_message(run, result.seconds), data=result)
    except Exception as error:
        raise explain(error, "infer") from None


@task(
    name="infer",
    task_run_name="infer: seal the requests of batches",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def seal_requests(run: Run, inference: Inference, stream: Stream) -> State[None]:
    """Seal the requests of the first model for its provider's batch API, unless an earlier attempt has done so."""
    from overnight.tasks.infer.first_reading import pass_barriers, read_for_batches  # imports Ray Data

    try:
        link = inference.links[0]
        model = batched([link.model], run)
        assert model
        assert stream.sample  # preprocess has written it
        if len(sample := read_sample(stream.sample)):
            require_inputs(link, sample)
        if not Parts.of(run).is_sealed():
            for sentence in pass_barriers(run, stream, inference.plan):
                get_run_logger().info(sentence)
            stage = Requests(stream.steps, model)
            sentence = seal(run, model, read_for_batches(run, stream, stage, inference.plan))
            get_run_logger().info(sentence)
        return Completed(message="the requests of batches are sealed")
    except Exception as error:
        raise explain(error, "infer") from None


def _message(run: Run, seconds: float) -> str:
    counts = [count for count, _ in read_summaries(run.order)]
    if not counts:
        return "no row was left to do"
    total = "" if None in counts else f"{sum(filter(None, counts)):,} "
    return f"{total}rows read, run through the models and staged in {seconds:,.1f} s"


def _try_models(run: Run, inference: Inference, stream: Stream) -> Trials:
    """Try the models on the sample, and show its rows, whether or not the models can be tried."""
    assert stream.sample  # preprocess has written it
    sample, behind = read_sample(stream.sample), None
    try:
        trials = _trials(run, inference, sample)
        behind = trials.behind
    finally:
        _show_preview(run, sample, behind)
    return trials


def _facts(run: Run, inference: Inference, stream: Stream, trials: Trials) -> Sampled:
    results = [choice.trial for choice in trials.choices]
    return Sampled(
        columns=columns_made(trials.sample, results, run.keep_columns, stream.bytes_stay),
        failed=trials.failure,
        error=trials.error,
        warnings=tuple(warnings_of_replaced(trials.sample, inference.links, results)),
    )


def _stage(run: Run, inference: Inference, stager: Stager, stream: Stream, trials: Trials, facts: Sampled) -> Streamed:
    """Place the stages on Ray, run them, and stage the rows."""
    import ray.data

    from overnight.tasks.infer import operators

    plan, choices, longest = inference.plan, trials.choices, inference.part_size.longest
    placement = operators.placement(run, plan, choices)
    largest = _largest_block(run, stream, trials, placement.read_by_workers)
    pass_on = partial(passed_on, full=largest, longest=longest)
    segments = operators.place(stream, choices, plan, placement, pass_on)
    if not choices:
        light = partial(without_heavy, keep=run.keep_columns, bytes_stay=stream.bytes_stay, longest=longest)
        segments[-1] = replace(segments[-1], pass_on=light)
    with ray.data.DataContext.current(operators.context(largest)):
        dataset = operators.on_ray(run, segments, stream.seed)
    if choices:
        reads = placement.read_by_workers
        prepares = placement.prepared_by_workers and (reads or stream.steps is not None)
        _describe(run, explanation(plan, choices, trials.sample, prepares, reads))
        wait_until_free(plan, run.busy_timeout_seconds, partial(_make_room, choices))
    return stager.stage(run, dataset, operators.names_by_stage(segments), facts)


def _make_room(choices: list[Choice], warning: str) -> None:
    """End the loaded models that have devices of other runs, while this run waits for its resources."""
    for choice in choices:
        end_on_device(choice.loaded_in)
    get_run_logger().warning(warning)


def _largest_block(run: Run, stream: Stream, trials: Trials, read_by_workers: bool) -> int:
    """Return the bytes of a block with which Ray Data passes rows on: fewer for slow models."""
    sample = trials.sample
    rows = [choice.rows_a_block for choice in trials.choices if choice.rows_a_block]
    if not (rows and len(sample)):
        return LARGEST_BLOCK_BYTES
    size = sample.nbytes / len(sample)
    if read_by_workers:  # only their output is blocks of rows
        size = bytes_a_row(sample, run.keep_columns, stream.bytes_stay)
    return int(np.clip(min(rows) * size, 1, LARGEST_BLOCK_BYTES))


def without_heavy(
    pieces: Iterable[pa.Table], keep: Sequence[str], bytes_stay: bool, longest: float
) -> Iterator[pa.Table]:
    """Yield the blocks `pieces` of a job without models, without the heavy columns that are not published."""
    light = (drop_heavy(piece, keep, bytes_stay) for piece in pieces)
    return passed_on(light, LARGEST_BLOCK_BYTES, longest)


def _trials(run: Run, inference: Inference, sample: pa.Table) -> Trials:
    """Try each model on the rows that the models before it passed, and choose how it runs."""
    if not inference.links:
        return Trials(sample, [], None)
    plan, work = inference.plan, _work(run, sample, inference)
    choices: list[Choice] = []
    failure, error = None, None
    rows, has_all_columns = sample, True
    pools = pools_of(inference.links, plan)
    for link, pool, begun in zip(inference.links, pools, inference.processes, strict=True):
        process = choices[-1].trial.process if link.shares_engine and choices[-1].trial else begun
        if has_all_columns and len(rows):
            require_inputs(link, rows)
        first = rebatch.first_rows(rows, SAMPLE_ROWS)
        result = try_model(run, link, pool, first, process, get_run_logger().warning)
        trial = result if isinstance(result, Trial) else None
        if link.shares_engine and process and (trial is None or trial.process is process):
            choices[-1] = choices[-1].without_process()
        choices.append(choose(link, pool, trial, plan, work, blocks.rows_each(rows)))
        if isinstance(result, Failed) and has_all_columns and not link.model.where:
            sentence = f"{link.model.shown_name()}: {result}."
            supervisor.report(run, "infer", sentence)
            get_run_logger().warning(sentence)
            failure = (sentence, result.block)
            error = f"{sentence} {ADVICE}" if result.is_the_models else None
        if trial:
            rows = trial.behind
        else:
            has_all_columns = False
    # Only now, because a trial holds the devices of its model: no other trial may share their memory.
    choices = [replace(choice, loaded_in=released(choice.trial)) for choice in choices]
    return Trials(sample, choices, rows if has_all_columns else None, failure, error)


def _work(run: Run, sample: pa.Table, inference: Inference) -> Work:
    from overnight.tasks.infer.operators import may_workers_read

    summaries = read_summaries(run.order)
    rows = 0.0
    for count, _ in summaries:
        rows += math.inf if count is None else count
    return Work(
        rows=rows,
        prepare_seconds=blocks.seconds_a_row(sample, "preprocess"),
        bytes_a_row=sample.nbytes / max(len(sample), 1),
        blocks=len(summaries) if may_workers_read(run, inference.plan) else None,
        rows_per_part=inference.part_size.rows,
    )


@dispensable()
def _show_preview(run: Run, sample: pa.Table, behind: pa.Table | None) -> None:
    description = f"Rows of {run.job}/{run.partition}"
    if behind is not None:
        description += ", with the models' results"
    _create_page(run, "preview", description, markdown(predictions_beside_inputs(sample, behind)))


@dispensable()
def _describe(run: Run, explained: dict[str, Any]) -> None:
    _create_page(run, "plan", f"How {run.job}/{run.partition} is run, and why", markdown_table(explained))


def _create_page(run: Run, name: str, description: str, text: str) -> None:
    owner = {"flow_run_id": prefect.runtime.flow_run.id, "task_run_id": prefect.runtime.task_run.id}
    key = artifact_key(run.job, name)
    with get_client(sync_client=True) as client:
        create_listed(client, ArtifactCreate(key=key, type="markdown", description=description, data=text, **owner))
