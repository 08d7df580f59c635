"""Infer: waits until the plan's resources are free, tries each model on a few rows, and adds a pool of workers each."""

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from pydantic import Field

from tasks import rows
from tasks.artifacts import artifact_key, dispensable, markdown_table
from tasks.cluster import missing_now, read_cluster
from tasks.infer.chat import Chat
from tasks.infer.explanation import Choice, explanation
from tasks.infer.image_captioning import ImageCaptioning
from tasks.infer.image_classification import ImageClassification
from tasks.infer.image_embedding import ImageEmbedding
from tasks.infer.keras_model import KerasModel
from tasks.infer.object_detection import ObjectDetection
from tasks.infer.onnx_model import OnnxModel
from tasks.infer.openai_endpoint import OpenAI
from tasks.infer.predictor import Predictor
from tasks.infer.python import PythonPredictor
from tasks.infer.query import Embedder, embed_image, embed_text, embedder
from tasks.infer.sklearn_model import SklearnModel
from tasks.infer.text_classification import TextClassification
from tasks.infer.text_embedding import TextEmbedding
from tasks.infer.text_generation import TextGeneration
from tasks.infer.torch_model import TorchModel
from tasks.infer.transcription import Transcription
from tasks.infer.trial import Trial
from tasks.infer.trials import begin_trials, is_forked, preload, tried
from tasks.infer.vllm_server import VLLM
from tasks.infer.worker import ForkedPreparingWorker, ForkedWorker, Prepare, PreparingWorker, Worker, drop_heavy
from tasks.plugins import with_plugins
from tasks.reading_order import read_summaries
from tasks.resources import PREPARE, SECONDS_A_ROW, TASK_RETRIES, UNREAD, Plan, Pool, workers_in_memory
from tasks.run_directory import Run

__all__ = [
    "AnyPredictor",
    "Embedder",
    "begin_trials",
    "embed_image",
    "embed_text",
    "embedder",
    "infer",
    "preload",
]

AnyPredictor = Annotated[
    ImageClassification
    | ImageEmbedding
    | ObjectDetection
    | TextClassification
    | TextEmbedding
    | TextGeneration
    | Transcription
    | Chat
    | VLLM
    | OpenAI
    | ImageCaptioning
    | TorchModel
    | OnnxModel
    | KerasModel
    | SklearnModel
    | PythonPredictor,
    Field(discriminator="kind"),
]
if not TYPE_CHECKING:
    AnyPredictor = with_plugins(AnyPredictor, "predictors", Predictor)

WAIT_SECONDS = 0.5  # Ray keeps a reservation for about a second after its task has ended
SECONDS_BETWEEN_WARNINGS = 60.0
MAX_RESTARTS = 16  # of a worker: a row that kills it does so three times, four in a large batch

SECONDS_A_WORKER = 10.0  # of work for which starting one more worker is worth it
SHORTEST_TASK_SECONDS, LONGEST_TASK_SECONDS = 1.0, 4.0  # which a death costs
TASKS_A_WORKER = 20  # at least, where they are not too short for it: none is then alone for long at the end
ROWS_A_TASK, UNREAD_ROWS_A_TASK = 512, 4096  # at most; where the worker reads them itself, none lies in Ray's memory
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
    if not models:
        return dataset.map_batches(
            drop_heavy,
            fn_kwargs={"keep": keep},
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=plan.task_cpus,
            concurrency=plan.task_concurrency,
            max_retries=TASK_RETRIES,  # as reading and preprocessing, which it is then fused with
        )
    whole = _sample(run)
    each, sample = rows.rows_each(whole), rows.first_rows(whole, SAMPLE_ROWS)
    rows_left = _rows_left(run)
    prepare: Prepare | None = dataset.context.get_config(PREPARE, None)
    earlier: list[str] = []
    measured: list[float] = []
    choices: list[Choice] = []
    for place, (written, planned, trying) in enumerate(zip(models, plan.pools, begun, strict=True), 1):
        trial = tried(run, written, planned, sample, rows_left * each, trying)
        seconds = trial.seconds_a_row if trial else None
        found = {"batch_size": trial.batch_size} if trial and trial.batch_size else {}
        model = written.model_copy(update=found)
        of_both = seconds * each + rows.seconds_a_row(sample, "preprocess") if seconds else None
        seconds_to_do = rows_left * of_both if of_both else math.inf
        pool = _sized(planned, trial, plan, seconds_to_do)
        if prepare and pool.maximum < planned.maximum:  # memory holds fewer workers than there are CPUs to prepare rows
            dataset = _prepared_apart(dataset, prepare)
            prepare = None
        measured += [seconds * each / pool.initial] if seconds else []
        prefix = f"{model.name}_" if len(models) > 1 else ""
        per_call = max(round(model.rows_at_once() / each), 1)
        a_worker = seconds_to_do / pool.initial
        at_once = _a_task(run, dataset, per_call, of_both, a_worker, rows_per_part) if plan.is_beside else per_call
        dataset = dataset.map_batches(
            _worker(is_forked(model, pool), prepare is not None),
            fn_constructor_kwargs={
                "predictor": model,
                "run": run,
                "prefix": prefix,
                "drop_heavy": place == len(models),
                "earlier": list(earlier),
                "keep": keep,
                "pace": seconds or 0.0,
                "columns": trial.columns if trial else None,
                **({"prepare": prepare} if prepare else {}),
            },
            batch_size=at_once,
            batch_format="pyarrow",
            compute=strategy(pool, model.calls_at_once()),
            max_restarts=MAX_RESTARTS,
            max_task_retries=MAX_RESTARTS,
            **pool.remote_arguments(),
        )
        earlier.append(prefix)
        choices.append(Choice(written, model, pool, trial, at_once))
    if measured:
        dataset.context.set_config(SECONDS_A_ROW, sum(measured))
    _describe(run, explanation(plan, choices, sample, prepare is not None, dataset.context.get_config(UNREAD, False)))
    wait_until_free(plan)
    return dataset


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


def _a_task(
    run: Run,
    dataset: ray.data.Dataset,
    per_call: int,
    seconds_a_row: float | None,
    seconds_a_worker: float,
    rows_per_part: int | None,
) -> int:
    """How much a worker that prepares its own rows is handed at once: rows, or blocks of the order with as many."""
    is_unread = dataset.context.get_config(UNREAD, False)
    most = UNREAD_ROWS_A_TASK if is_unread else ROWS_A_TASK
    count = rows_a_task(per_call, seconds_a_row, seconds_a_worker, min(most, rows_per_part or most))
    if not is_unread:
        return count
    return max(round(count * len(read_summaries(run.order)) / max(_rows_left(run), 1)), 1)


def rows_a_task(rows_per_call: int, seconds_a_row: float | None, seconds_a_worker: float, most: int) -> int:
    """Rows that a worker is handed at once: calls that fill seconds, so that Ray's work a task is little."""
    seconds = np.clip(seconds_a_worker / TASKS_A_WORKER, SHORTEST_TASK_SECONDS, LONGEST_TASK_SECONDS)
    count = seconds / seconds_a_row if seconds_a_row else rows_per_call
    return rows_per_call * int(np.clip(count / rows_per_call, 1, max(most // rows_per_call, 1)))


def _sized(pool: Pool, trial: Trial | None, plan: Plan, seconds_to_do: float) -> Pool:
    """The pool with no more workers than memory holds and, where there may be fewer, than there is work for."""
    if not plan.is_beside:
        return pool
    held = workers_in_memory(trial.memory if trial else 0, read_cluster()[0])
    most = max(min(pool.maximum, held), 1)
    return replace(pool, maximum=most, initial=int(np.clip(seconds_to_do / SECONDS_A_WORKER, 1, most)))


def _rows_left(run: Run) -> float:
    """Infinite where nobody knows."""
    return sum(math.inf if count is None else count for count, _ in read_summaries(run.order))


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
        sample = pq.ParquetFile(file).read()
    return sample.filter(pa.array(sample["__state"].to_numpy() == rows.LIVE))


@dispensable()
def _describe(run: Run, explained: dict[str, Any]) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, "plan"),
        description=f"How {run.job}/{run.partition} is run, and why",
        markdown=markdown_table(explained),
    )
