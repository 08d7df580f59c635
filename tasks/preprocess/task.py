"""Preprocess: one CPU operator that runs the job's steps block by block, beside the read."""

import ray.data
from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from tasks import rows
from tasks.artifacts import artifact_key, dispensable
from tasks.errors import explain
from tasks.preprocess.preview import preview
from tasks.preprocess.run_steps import run_steps
from tasks.preprocess.steps import Step
from tasks.resources import Plan
from tasks.run_directory import Run
from tasks.staging import parquet_bytes

__all__ = ["Step", "preprocess"]

SAMPLE_ROWS = 8


@task(
    name="preprocess",
    task_run_name="preprocess: try the steps on a few rows",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def preprocess(run: Run, steps: list[Step], plan: Plan, dataset: ray.data.Dataset) -> ray.data.Dataset:
    """The dataset with the steps' work added. Runs a handful of rows, so that a wrong setting fails now.

    Raises `ContractError` where a setting does not fit the columns.
    """
    # Blocks of this size keep memory small and let the model start early; the default is four times as much.
    dataset.context.target_max_block_size = 32 * 2**20
    if steps:
        dataset = dataset.map_batches(
            run_steps,
            fn_kwargs={"steps": tuple(steps), "run": run},
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=plan.task_cpus,
            concurrency=plan.task_concurrency,
            max_retries=3,
        )
    try:
        sample = rows.joined(dataset.limit(SAMPLE_ROWS).iter_batches(batch_format="pyarrow", batch_size=None))
    except Exception as error:
        raise explain(error, "preprocess") from None
    run.sample.write_bytes(parquet_bytes(sample, "zstd"))
    with dispensable():
        create_markdown_artifact(
            key=artifact_key(run.job, "preview"),
            description=f"Rows of {run.job}/{run.partition} after preprocessing",
            markdown=preview(rows.visible(sample)),
        )
    return dataset
