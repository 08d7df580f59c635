"""Infer: waits until the plan's resources are free, tries each model on a few rows, and adds a pool of workers each."""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from overnight.tasks.artifacts import artifact_key, dispensable, markdown_table
from overnight.tasks.infer.autotune.plan_summary import explanation
from overnight.tasks.infer.autotune.trial import Failed, Trial
from overnight.tasks.infer.autotune.trial_runner import begin_trials, is_forked, tried
from overnight.tasks.infer.autotune.worker_sizing import Choice, Work, choose, stream_seconds_a_row
from overnight.tasks.infer.forked_worker import ForkedPreparingWorker, ForkedWorker
from overnight.tasks.infer.heavy_columns import drop_heavy, heavy_columns
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.infer.query_embedding import Embedder, embed_image, embed_text, embedder
from overnight.tasks.infer.worker import Prepare, PreparingWorker, Worker
from overnight.tasks.resources.cluster import missing_now
from overnight.tasks.resources.plan import (
    BYTES_A_ROW,
    BYTES_STAY,
    COLUMNS,
    PREPARE,
    SECONDS_A_ROW,
    TASK_RETRIES,
    TRIED,
    UNREAD,
    Plan,
    Pool,
)
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.state.read_plan import read_summaries
from overnight.tasks.state.run import Run
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
MAX_RESTARTS = 16  # of a worker: a row that kills it does so three times, four in a large batch

SAMPLE_ROWS = 8  # of a document's chunks or a video's frames there are many more than a trial needs


@task(
    name="infer",
    task_run_name="infer: load the models and try them on a few rows",
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
    dataset: ray.data.Dataset,
) -> ray.data.Dataset:
    """The dataset with every model's columns added and heavy inputs dropped, except those that `keep` names.

    rows_per_part: as the job asks, if it does: a worker is handed no more at once. begun: of `begin_trials`.

    Raises `JobError` for a model that cannot be loaded and `ContractError` for one that breaks its contract.
    """
    if not begun or not all(begun):
        wait_until_free(plan)
    sample = _sample(run)
    bytes_stay = dataset.context.get_config(BYTES_STAY, False)
    dataset.context.set_config(BYTES_A_ROW, _bytes_a_row(sample, keep, bytes_stay))
    if not models:
        dataset.context.set_config(COLUMNS, columns_made(sample, [], [], keep, bytes_stay))
        return dataset.map_batches(
            drop_heavy,
            fn_kwargs={"keep": keep, "bytes_stay": bytes_stay},
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=plan.task_cpus,
            concurrency=plan.task_concurrency,
            max_retries=TASK_RETRIES,  # as reading and preprocessing, which it is then fused with
        )
    work = _work(run, dataset, sample, rows_per_part)
    sample = rebatch.first_rows(sample, SAMPLE_ROWS)
    found = [
        tried(run, model, pool, sample, work.rows * work.each, trying)
        for model, pool, trying in zip(models, plan.pools, begun, strict=True)
    ]
    # Other models are tried on rows that lack the columns of those before, or that `where` would pass over.
    if isinstance(failed := found[0], Failed) and not models[0].where:
        dataset.context.set_config(TRIED, (_warned(run, models[0], failed), failed.block))
    choices = [
        choose(model, pool, trial if isinstance(trial, Trial) else None, plan, work)
        for model, pool, trial in zip(models, plan.pools, found, strict=True)
    ]
    prepare: Prepare | None = dataset.context.get_config(PREPARE, None)
    if prepare and choices[0].pool.maximum < plan.pools[0].maximum:  # fewer workers than there are CPUs to prepare rows
        dataset, prepare = _prepared_apart(dataset, prepare), None
    slow = [choice.rows_a_block for choice in choices if choice.rows_a_block]
    if slow and len(sample):
        is_unread = dataset.context.get_config(UNREAD, False)  # then only what workers hand on are blocks of rows
        size = dataset.context.get_config(BYTES_A_ROW) if is_unread else sample.nbytes / len(sample)
        largest = dataset.context.target_max_block_size
        dataset.context.target_max_block_size = int(np.clip(min(slow) * size, 1, largest))
    prefixes = [f"{model.name}_" if len(models) > 1 else "" for model in models]
    for place, choice in enumerate(choices):
        read = columns_read(models[place + 1 :])
        settings: dict[str, Any] = {
            "prefix": prefixes[place],
            "drop_heavy": read is not None,
            "earlier": prefixes[:place],
            "keep": [*keep, *(read or [])],
            "bytes_stay": bytes_stay,
            "is_slow": bool(slow),
        }
        dataset = _inferred(dataset, run, choice, settings | ({"prepare": prepare} if prepare else {}))
    trials = [choice.trial for choice in choices]
    dataset.context.set_config(COLUMNS, columns_made(_sample(run), trials, prefixes, keep, bytes_stay))
    dataset.context.set_config(SECONDS_A_ROW, stream_seconds_a_row(choices, work, prepare is not None))
    _describe(run, explanation(plan, choices, sample, prepare is not None, dataset.context.get_config(UNREAD, False)))
    wait_until_free(plan)
    return dataset


def _warned(run: Run, model: AnyPredictor, failed: Failed) -> str:
    """Tell of a model that failed for every row that it was tried on; return the sentence, for the receipt."""
    told = f"{model.shown_name()}: {failed}."
    supervisor.report(run, "infer", told)
    get_run_logger().warning(told)
    return told


def columns_made(
    sample: pa.Table, trials: Sequence[Trial | None], prefixes: Sequence[str], keep: list[str], bytes_stay: bool = False
) -> pa.Schema | None:
    """The columns that rows have behind all models; None where the sample does not show them."""
    if not len(sample) or None in trials:
        return None
    seen = blocks.live_rows(sample)[0]
    heavy = heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)
    fields = {field.name: field.type for field in seen.schema if field.name not in heavy}
    for trial, prefix in zip(trials, prefixes, strict=True):
        fields |= {prefix + field.name: field.type for field in trial.columns} if trial else {}
    return pa.schema(list(fields.items()))


def columns_read(models: Sequence[AnyPredictor]) -> list[str] | None:
    """What the models read, or choose their rows by; None where one of them reads all that there is."""
    names: list[str] = []
    for model in models:
        inputs = model.inputs()
        if inputs is None:
            return None
        names += [*inputs, *(Expression(model.where).columns if model.where else [])]
    return names


def _work(run: Run, dataset: ray.data.Dataset, sample: pa.Table, rows_per_part: int | None) -> Work:
    summaries = read_summaries(run.order)
    return Work(
        rows=sum(math.inf if count is None else count for count, _ in summaries),
        each=blocks.rows_each(sample),
        prepare_seconds=blocks.seconds_a_row(sample, "preprocess"),
        blocks=len(summaries) if dataset.context.get_config(UNREAD, False) else None,
        rows_per_part=rows_per_part,
    )


def _inferred(dataset: ray.data.Dataset, run: Run, choice: Choice, settings: dict[str, Any]) -> ray.data.Dataset:
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


def _prepared_apart(dataset: ray.data.Dataset, prepare: Prepare) -> ray.data.Dataset:
    """The rows after preprocessing, by Ray tasks on what CPUs the workers leave."""
    dataset.context.set_config(UNREAD, False)
    return dataset.map_batches(prepare, batch_size=None, batch_format="pyarrow", num_cpus=1, max_retries=TASK_RETRIES)


def wait_until_free(plan: Plan) -> None:
    """Returns as soon as the plan can start; says what it waits for while others hold it."""
    next_warning = time.monotonic() + 3
    while missing := missing_now(plan):
        if time.monotonic() >= next_warning:
            get_run_logger().warning("waiting for %s", missing)
            next_warning += SECONDS_BETWEEN_WARNINGS
        time.sleep(WAIT_SECONDS)


def _sample(run: Run) -> pa.Table:
    """The live ones of the rows that preprocessing tried."""
    with run.sample.open() as file:
        sample = pa.ipc.open_file(file.read()).read_all()
    return sample.filter(pa.array(sample["__state"].to_numpy() == blocks.LIVE))


def _bytes_a_row(sample: pa.Table, keep: Sequence[str], bytes_stay: bool) -> float:
    """Bytes that a source row of the sample takes behind the models, without their columns, which are not known yet."""
    light = blocks.without(sample, sorted(heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)))
    return blocks.live_rows(light)[0].nbytes / len(sample) if len(sample) else 0.0


@dispensable()
def _describe(run: Run, explained: dict[str, Any]) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, "plan"),
        description=f"How {run.job}/{run.partition} is run, and why",
        markdown=markdown_table(explained),
    )
