"""Infer: waits until the plan's resources are free, tries each model on a few rows, and adds a pool of workers each."""

import time
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from pydantic import Field

from tasks import rows
from tasks.artifacts import artifact_key, dispensable, markdown_table
from tasks.cluster import missing_now
from tasks.errors import JobError, StageFailed, find_cause
from tasks.infer.image_classification import ImageClassification
from tasks.infer.image_embedding import ImageEmbedding
from tasks.infer.predictor import Predictor
from tasks.infer.python import PythonPredictor
from tasks.infer.text_embedding import TextEmbedding
from tasks.infer.text_generation import TextGeneration
from tasks.infer.worker import Worker, drop_heavy, try_model
from tasks.resources import SECONDS_A_ROW, Plan, Pool
from tasks.run_directory import Run

AnyPredictor = Annotated[
    ImageClassification | ImageEmbedding | TextEmbedding | TextGeneration | PythonPredictor,
    Field(discriminator="kind"),
]

WAIT_SECONDS = 0.5  # Ray keeps a reservation for about a second after its task has ended
SECONDS_BETWEEN_WARNINGS = 60.0
MAX_RESTARTS = 16  # of a worker: a row that kills it does so three times, four in a large batch
MAX_TRIES = 6  # of the sample, which may hold two such rows

_passed: dict[tuple[str, str, str, pa.Schema], float] = {}  # seconds a row of what was tried in this process


@task(
    name="infer",
    task_run_name="infer: load the models and try them on a few rows",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def infer(
    run: Run, models: list[AnyPredictor], keep: list[str], plan: Plan, dataset: ray.data.Dataset
) -> ray.data.Dataset:
    """The dataset with every model's columns added and heavy inputs dropped, except those that `keep` names.

    Raises `JobError` for a model that cannot be loaded and `ContractError` for one that breaks its contract.
    """
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
    earlier: list[str] = []
    measured: list[float] = []
    for model, pool in zip(models, plan.pools, strict=True):
        seconds = _try(run, model, pool, sample)
        measured += [seconds / pool.minimum] if seconds else []
        prefix = f"{model.name}_" if len(models) > 1 else ""
        dataset = dataset.map_batches(
            Worker,
            fn_constructor_kwargs={
                "predictor": model,
                "run": run,
                "prefix": prefix,
                "drop_heavy": model is models[-1],
                "earlier": list(earlier),
                "keep": keep,
                "pace": seconds or 0.0,
            },
            batch_size=model.rows_per_call(),
            batch_format="pyarrow",
            concurrency=(pool.minimum, pool.maximum),
            max_restarts=MAX_RESTARTS,
            max_task_retries=MAX_RESTARTS,
            **pool.remote_arguments(),
        )
        earlier.append(prefix)
        _describe(run, model, pool, seconds)
    if measured:
        dataset.context.set_config(SECONDS_A_ROW, sum(measured))
    return dataset


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


def _try(run: Run, model: Predictor, pool: Pool, sample: pa.Table) -> float | None:
    """`try_model` in a process with the reservation of a worker, which ends with it and frees its device.

    Once: a model that took rows of these columns in an earlier partition of a backfill takes them again.
    """
    tried = (run.job, run.fingerprint, pool.label, sample.schema)
    if tried in _passed:
        return _passed[tried]
    remote = ray.remote(**pool.remote_arguments(), max_calls=1, max_retries=MAX_TRIES - 1)(try_model)
    label = f"inference {pool.label}"
    try:
        found: float | None = ray.get(remote.remote(model, run, sample))
    except ray.exceptions.WorkerCrashedError as error:
        raise StageFailed(
            f"{label}: its process ended {MAX_TRIES} times while {len(sample)} rows were tried: the model crashes, or "
            "takes longer than row_timeout_seconds, whatever the row.",
            "infer",
            "WorkerCrashedError",
        ) from error
    except ray.exceptions.RayTaskError as error:
        raise find_cause(error) or JobError(f"{label}: {error.cause}", "infer") from None
    if found:
        _passed[tried] = found
    return found


@dispensable()
def _describe(run: Run, model: Predictor, pool: Pool, seconds: float | None) -> None:
    create_markdown_artifact(
        key=artifact_key(run.job, f"model-{pool.label}"),
        description=f"Model and resources of {pool.label}",
        markdown=markdown_table(
            {
                **{name: value for name, value in model.model_dump().items() if value is not None},
                "batch size used": model.forward_batch_size(),
                "workers used": f"{pool.minimum} to {pool.maximum}" if pool.maximum > pool.minimum else pool.minimum,
                "CPUs a worker": pool.num_cpus,
                "seconds a row, measured on a sample": f"{seconds:.4f}" if seconds else "no row of the sample passed",
            }
        ),
    )
