"""Infer: tries each model on a few rows, then runs the stream: read, prepare, infer, stage parts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import prefect.runtime
import pyarrow as pa
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from overnight.tasks.artifacts import artifact_key, dispensable, markdown_table
from overnight.tasks.errors import explain
from overnight.tasks.infer.autotune.plan_summary import explanation
from overnight.tasks.infer.autotune.trial import Failed, Trial
from overnight.tasks.infer.autotune.trial_runner import begin_trials, end_on_device, released, tried
from overnight.tasks.infer.autotune.worker_sizing import Choice, Work, choose
from overnight.tasks.infer.columns import columns_made, require_inputs, warnings_of_replaced
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.infer.query_embedding import Embedder, embed_image, embed_text, embedder
from overnight.tasks.infer.sample import bytes_a_row, read_sample
from overnight.tasks.resources.plan import Plan
from overnight.tasks.resources.waiting import wait_until_free
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.part_size import PartSize
from overnight.tasks.rows.passing_on import LARGEST_BLOCK_BYTES, passed_on
from overnight.tasks.rows.preview import predictions_beside_inputs, preview
from overnight.tasks.state.read_plan import read_summaries
from overnight.tasks.state.run import Run
from overnight.tasks.state.stream import OperatorNames, Sampled, Stream, Streamed
from overnight.tasks.workers import supervisor

if TYPE_CHECKING:
    import ray.data

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
def infer(
    run: Run,
    inference: Inference,
    stage: Callable[[Run, "ray.data.Dataset", OperatorNames, Sampled], Streamed],
    stream: Stream,
) -> State[Streamed]:
    """Run the stream: read rows, prepare them, run every model and its steps, and stage parts.

    Return a completed state with the result of `stage`, which runs the dataset and writes its rows as parts. Each try
    processes only the rows that no staged part settles.

    Raise `JobError` for a model that cannot be loaded. Raise `ContractError` for a model that lacks an input column, or
    whose result is not valid. Raise any other error that stopped the stream, with its stage.
    """
    from overnight.tasks.infer import operators  # imports Ray Data, as the next
    from overnight.tasks.infer.first_reading import decide_duplicates

    try:
        if (prefect.runtime.task_run.run_count or 1) > 1:
            run = run.as_new_attempt()
        if not run.order.exists():  # a later try, which has no early trial
            stream.plan_read(run)
            inference = replace(inference, trials=[None] * len(inference.links))
        if not inference.trials or not all(inference.trials):
            wait_until_free(inference.plan, run.busy_timeout_seconds, get_run_logger().warning)
        for found in decide_duplicates(run, stream, inference.plan):
            get_run_logger().info(found)
        dataset, sampled = _laid_out(run, inference, stream)
        streamed = Streamed(columns=sampled.columns)
        if read_summaries(run.order):
            streamed = stage(run, dataset, operators.names_by_stage(), sampled)
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


def _laid_out(run: Run, inference: Inference, stream: Stream) -> tuple["ray.data.Dataset", Sampled]:
    """Try the models, and return the lazy dataset of the rows after all of them, with what the trials showed."""
    import ray.data

    from overnight.tasks.infer import operators

    plan, keep, longest = inference.plan, run.keep_columns, inference.part_size.longest
    sample = read_sample(stream.sample)
    if not inference.links:
        _show_preview(run, sample, None)
        with ray.data.DataContext.current(operators.context()):
            dataset = operators.read_rows(run, stream, plan)
            pass_on = partial(operators.without_heavy, keep=keep, bytes_stay=stream.bytes_stay, longest=longest)
            dataset = operators.prepare_rows(dataset, run, stream.steps, plan, pass_on)
        return dataset, Sampled(columns_made(sample, [], keep, stream.bytes_stay))
    read_by_workers = operators.is_read_by_workers(run, plan)
    work = _work(run, sample, inference.part_size.rows, read_by_workers)
    try:
        choices, failed, error, behind = _chosen(run, inference, sample, work)
    except Exception:
        _show_preview(run, sample, None)
        raise
    _show_preview(run, sample, behind)
    in_workers = plan.is_beside and choices[0].pool.maximum == plan.pools[0].maximum  # enough for all the CPUs
    read_by_workers = read_by_workers and in_workers
    prepare = operators.worker_preparation(run, stream, read_by_workers) if in_workers else None
    slow = [choice.rows_a_block for choice in choices if choice.rows_a_block]
    largest = LARGEST_BLOCK_BYTES
    if slow and len(sample):  # if workers read, only their output is blocks of rows
        size = bytes_a_row(sample, keep, stream.bytes_stay) if read_by_workers else sample.nbytes / len(sample)
        largest = int(np.clip(min(slow) * size, 1, largest))
    pass_on = partial(passed_on, full=largest, longest=longest)
    with ray.data.DataContext.current(operators.context(largest)):
        if read_by_workers:
            dataset = operators.read_numbers(run)
        else:
            steps = None if in_workers else stream.steps
            dataset = operators.prepare_rows(operators.read_rows(run, stream, plan), run, steps, plan, pass_on)
        for choice in choices:
            own = prepare if choice is choices[0] else None
            dataset = operators.infer_rows(dataset, run, choice, plan, bool(slow), pass_on, own)
    _describe(run, explanation(plan, choices, sample, prepare is not None, read_by_workers))

    def waiting(missing: str) -> None:
        """Make room: other runs may use the devices on which models are still loaded."""
        for choice in choices:
            end_on_device(choice.loaded_in)
        get_run_logger().warning(missing)

    wait_until_free(plan, run.busy_timeout_seconds, waiting)
    trials = [choice.trial for choice in choices]
    return dataset, Sampled(
        columns=columns_made(sample, trials, keep, stream.bytes_stay),
        failed=failed,
        error=error,
        warnings=tuple(warnings_of_replaced(sample, inference.links, trials)),
    )


def _chosen(
    run: Run, inference: Inference, sample: pa.Table, work: Work
) -> tuple[list[Choice], tuple[str, pa.Table] | None, str | None, pa.Table | None]:
    """Return the choices for each model after its trial, `failed` and `error` of `Sampled`, and the rows at the end.

    The rows at the end are the sample after all models, or None if a model passed no row. Each model is tried on the
    rows that the models before it passed.
    """
    choices: list[Choice] = []
    failed, error = None, None
    rows, is_whole = sample, True  # is_whole: the rows have the columns of all models so far
    plan = inference.plan
    for link, pool, trying in zip(inference.links, plan.pools, inference.trials, strict=True):
        if is_whole and len(rows):
            require_inputs(link, rows)
        each = blocks.rows_each(rows)
        first = rebatch.first_rows(rows, SAMPLE_ROWS)
        found = tried(run, link, pool, first, work.rows * each, trying, get_run_logger().warning)
        trial = found if isinstance(found, Trial) else None
        choices.append(choose(link, pool, trial, plan, work, each))
        if isinstance(found, Failed) and is_whole and not link.model.where:
            told = _warned(run, link.model, found)
            failed, error = (told, found.block), f"{told} {ADVICE}" if found.is_the_models else None
        rows, is_whole = (trial.behind, is_whole) if trial else (rows, False)
    # Only now, because a trial holds the devices of its model: no other trial may share their memory.
    choices = [replace(choice, loaded_in=released(choice.trial)) for choice in choices]
    return choices, failed, error, rows if is_whole else None


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
        bytes_a_row=sample.nbytes / max(len(sample), 1),
        blocks=len(summaries) if read_by_workers else None,
        rows_per_part=rows_per_part,
    )


@dispensable()
def _show_preview(run: Run, sample: pa.Table, behind: pa.Table | None) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, "preview"),
        description=f"Rows of {run.job}/{run.partition}" + (", with the models' results" if behind is not None else ""),
        markdown=preview(predictions_beside_inputs(sample, behind)),
    )


@dispensable()
def _describe(run: Run, explained: dict[str, Any]) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, "plan"),
        description=f"How {run.job}/{run.partition} is run, and why",
        markdown=markdown_table(explained),
    )
