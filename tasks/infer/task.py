"""Infer: waits until the plan's resources are free, tries each model on a few rows, and adds a pool of workers each."""

import math
import time
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from pydantic import Field
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tasks import rows
from tasks.artifacts import artifact_key, dispensable, markdown_table
from tasks.cluster import missing_now, read_cluster
from tasks.errors import JobError, StageFailed, find_cause
from tasks.infer.image_classification import ImageClassification
from tasks.infer.image_embedding import ImageEmbedding
from tasks.infer.predictor import Predictor
from tasks.infer.python import PythonPredictor
from tasks.infer.text_embedding import TextEmbedding
from tasks.infer.text_generation import TextGeneration
from tasks.infer.trial import Trial, Trying
from tasks.infer.worker import Prepare, PreparingWorker, Worker, drop_heavy
from tasks.reading_order import read_summaries
from tasks.resources import PREPARE, SECONDS_A_ROW, TASK_RETRIES, UNREAD, Plan, Pool, workers_in_memory
from tasks.run_directory import Run

AnyPredictor = Annotated[
    ImageClassification | ImageEmbedding | TextEmbedding | TextGeneration | PythonPredictor,
    Field(discriminator="kind"),
]

WAIT_SECONDS = 0.5  # Ray keeps a reservation for about a second after its task has ended
SECONDS_BETWEEN_WARNINGS = 60.0
MAX_RESTARTS = 16  # of a worker: a row that kills it does so three times, four in a large batch
MAX_TRIES = 6  # of the sample, which may hold two such rows

SECONDS_A_WORKER = 10.0  # of work for which starting one more worker is worth it
SECONDS_A_TASK = 1.0  # which a death costs
ROWS_A_TASK = 512

_begun: set[tuple[str, str]] = set()  # what was tried early by this process, a flow's
_passed: dict[tuple[str, str, pa.Schema], Trial] = {}  # what was tried in this process


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
            max_retries=3,
        )
    sample = _sample(run)
    prepare: Prepare | None = dataset.context.get_config(PREPARE, None)
    earlier: list[str] = []
    measured: list[float] = []
    for place, (written, planned, trying) in enumerate(zip(models, plan.pools, begun, strict=True), 1):
        trial = _try(run, written, planned, sample, trying)
        seconds = trial.seconds_a_row if trial else None
        found = {"batch_size": trial.batch_size} if trial and trial.batch_size else {}
        model = written.model_copy(update=found)
        of_both = seconds + rows.seconds_a_row(sample, "preprocess") if seconds else None
        pool = _sized(planned, trial, plan, _rows_left(run) * of_both if of_both else math.inf)
        if prepare and pool.maximum < planned.maximum:  # memory holds fewer workers than there are CPUs to prepare rows
            dataset = _prepared_apart(dataset, prepare)
            prepare = None
        measured += [seconds / pool.initial] if seconds else []
        prefix = f"{model.name}_" if len(models) > 1 else ""
        dataset = dataset.map_batches(
            PreparingWorker if prepare else Worker,
            fn_constructor_kwargs={
                "predictor": model,
                "run": run,
                "prefix": prefix,
                "drop_heavy": place == len(models),
                "earlier": list(earlier),
                "keep": keep,
                "pace": seconds or 0.0,
                **({"prepare": prepare} if prepare else {}),
            },
            batch_size=_a_task(run, dataset, model, of_both, rows_per_part)
            if plan.is_beside
            else model.rows_per_call(),
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(min_size=pool.minimum, max_size=pool.maximum, initial_size=pool.initial),
            max_restarts=MAX_RESTARTS,
            max_task_retries=MAX_RESTARTS,
            **pool.remote_arguments(),
        )
        earlier.append(prefix)
        _describe(run, model, pool, trial)
    if measured:
        dataset.context.set_config(SECONDS_A_ROW, sum(measured))
    wait_until_free(plan)
    return dataset


def _a_task(
    run: Run, dataset: ray.data.Dataset, model: Predictor, seconds_a_row: float | None, rows_per_part: int | None
) -> int:
    """How much a worker that prepares its own rows is handed at once: rows, or blocks of the order with as many."""
    count = rows_a_task(model.rows_per_call(), seconds_a_row, rows_per_part or ROWS_A_TASK)
    if not dataset.context.get_config(UNREAD, False):
        return count
    summaries = read_summaries(run.order)
    return max(round(count * len(summaries) / max(_rows_left(run), 1)), 1)


def rows_a_task(rows_per_call: int, seconds_a_row: float | None, most: int) -> int:
    """Rows that a worker is handed at once: calls that fill a second, so that Ray's work a task is little."""
    count = SECONDS_A_TASK / seconds_a_row if seconds_a_row else rows_per_call
    return rows_per_call * int(np.clip(count / rows_per_call, 1, max(min(most, ROWS_A_TASK) // rows_per_call, 1)))


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


def begin_trials(run: Run, models: list[AnyPredictor], plan: Plan) -> list[Any]:
    """A process for each model that loads it while inputs are listed and preprocessing is tried; None for some.

    Not where a model takes more than a CPU's time: a device may be another run's until this one's turn comes. Nor where
    it was tried before in this process: the next partition of a backfill does without. Each ends with its last handle.
    """
    begun = []
    for model, pool in zip(models, plan.pools, strict=True):
        is_free = not (pool.num_gpus or pool.memory or pool.accelerator_type or pool.resources)
        key = (run.fingerprint, model.model_dump_json())
        begun.append(_begin(model, run, {"num_cpus": 0, **_beside_cpus()}) if is_free and key not in _begun else None)
        _begun.add(key)
    return begun


def _beside_cpus() -> dict[str, Any]:
    """A node that is there for work: one with the most CPUs."""
    node = max(ray.nodes(), key=lambda node: node["Alive"] * node["Resources"].get("CPU", 0))
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)}


def _begin(model: Predictor, run: Run, reserves: dict[str, Any]) -> Any:
    again = {"max_restarts": MAX_TRIES - 1, "max_task_retries": MAX_TRIES - 1}
    actor = ray.remote(Trying).options(**reserves, **again).remote(model, run)
    actor.loaded.remote()
    return actor


def _try(run: Run, model: Predictor, pool: Pool, sample: pa.Table, begun: Any) -> Trial | None:
    """`Trying.on` in a process that ends with it and frees its device; with a worker's reservation if not `begun`.

    Once: a model that took rows of these columns in an earlier partition of a backfill takes them again.
    """
    tried = (run.fingerprint, model.model_dump_json(), sample.schema)
    if tried in _passed:
        return _passed[tried]
    trying = begun or _begin(model, run, pool.remote_arguments())
    label = f"inference {pool.label}"
    try:
        found: Trial | None = ray.get(trying.on.remote(sample))
    except ray.exceptions.RayActorError as error:
        raise StageFailed(
            f"{label}: its process ended {MAX_TRIES} times while {len(sample)} rows were tried: the model crashes, or "
            "takes longer than row_timeout_seconds, whatever the row.",
            "infer",
            "WorkerCrashedError",
        ) from error
    except ray.exceptions.RayTaskError as error:
        raise find_cause(error) or JobError(f"{label}: {error.cause}", "infer") from None
    finally:
        ray.kill(trying)
    if found:
        _passed[tried] = found
    return found


@dispensable()
def _describe(run: Run, model: Predictor, pool: Pool, trial: Trial | None) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, f"model-{pool.label}"),
        description=f"Model and resources of {pool.label}",
        markdown=markdown_table(
            {
                **{name: value for name, value in model.model_dump().items() if value is not None},
                "batch size used": model.forward_batch_size(),
                "workers used": f"{pool.minimum} to {pool.maximum}" if pool.maximum > pool.minimum else pool.minimum,
                "CPUs a worker": pool.num_cpus,
                "seconds a row, measured on a sample": f"{trial.seconds_a_row:.4f}" if trial else "no row passed",
                "memory of a worker, measured": f"{trial.memory / 2**30:.2f} GiB" if trial else "no row passed",
            }
        ),
    )
