"""Preprocess: one CPU operator that runs the job's steps block by block, beside the read."""

import contextlib
from functools import partial

import pyarrow as pa
import ray
import ray.data
from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from overnight.tasks.artifacts import artifact_key, dispensable
from overnight.tasks.errors import StageFailed, explain
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.preprocess.preview import preview, shown
from overnight.tasks.preprocess.query_image import query_image, readable_image
from overnight.tasks.preprocess.run_steps import Read, Work, read_and_run, run_steps, try_first_rows
from overnight.tasks.resources.plan import PREPARE, READ, TASK_RETRIES, UNREAD, Plan
from overnight.tasks.rows import blocks
from overnight.tasks.state.read_plan import read_block, read_summaries
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import arrow_bytes
from overnight.tasks.workers import fork_server, supervisor
from overnight.tasks.workers.forked_process import ProcessDied, in_process_of_its_own

__all__ = ["begin_steps", "preprocess", "query_image", "readable_image"]

SAMPLE_ROWS = 8


@task(
    name="preprocess",
    task_run_name="preprocess: try the steps on a few rows",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def preprocess(run: Run, steps: list[Step], plan: Plan, dataset: ray.data.Dataset) -> ray.data.Dataset:
    """The dataset with the steps' work added, or left to the model's workers, with the reading, where the plan says so.

    Runs a handful of rows, so that a wrong setting fails now.

    Raises `ContractError` where a setting does not fit the columns.
    """
    # Blocks of this size keep memory small and let the model start early; the default is four times as much.
    dataset.context.target_max_block_size = 32 * 2**20
    try:
        sample = _try(run, steps, plan, dataset.context.get_config(READ))
    except Exception as error:
        raise explain(error, "preprocess") from None
    run.sample.write_bytes(arrow_bytes(sample))
    with dispensable():
        create_markdown_artifact(
            key=artifact_key(run.job, "preview"),
            description=f"Rows of {run.job}/{run.partition} after preprocessing",
            markdown=preview(shown(sample)),
        )
    work = partial(run_steps, steps=tuple(steps), run=run, pace=blocks.seconds_a_row(sample, "preprocess"))
    if plan.is_beside and _has_a_row_a_unit(run):
        return _unread(run, dataset, work if steps else None)
    if not steps:
        return dataset
    if plan.is_beside:
        dataset.context.set_config(PREPARE, work)
        return dataset
    return dataset.map_batches(
        work,
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=plan.task_cpus,
        concurrency=plan.task_concurrency,
        max_retries=TASK_RETRIES,
    )


def begin_steps() -> None:
    """Has a process of Ray's import what the first rows will need, while inputs are listed; it is not waited for.

    Not where they are tried in a forked process, which has that.
    """
    if not fork_server.is_there():
        ray.remote(num_cpus=0, max_retries=0)(fork_server.import_own).remote()


def _has_a_row_a_unit(run: Run) -> bool:
    """Whether a unit is a file that is one row; others may be too large for one worker, and are light to hand on."""
    if not read_summaries(run.order):
        return False
    counts = read_block(run.order, 0)["rows"]
    return counts.null_count == 0 and bool((counts.to_numpy() == 1).all())


def _unread(run: Run, dataset: ray.data.Dataset, work: Work | None) -> ray.data.Dataset:
    """The numbers of the reading order's blocks, for workers that read and preprocess their own rows."""
    read = dataset.context.get_config(READ)
    numbers = [{"block": block} for block in range(len(read_summaries(run.order)))]
    with ray.data.DataContext.current(dataset.context):
        unread = ray.data.from_items(numbers, override_num_blocks=len(numbers))  # unlike from_arrow, without a Ray task
    unread.context.set_config(UNREAD, True)
    unread.context.set_config(PREPARE, partial(read_and_run, run=run, read=read, work=work))
    return unread


def _try(run: Run, steps: list[Step], plan: Plan, read: Read) -> pa.Table:
    """A few rows after every step, made in a process of their own, which a row may kill."""
    count = min([SAMPLE_ROWS, *(2 * step.rows_at_once for step in steps)])
    trial = (read, tuple(steps), run, count)
    if fork_server.is_there():
        for _ in range(TASK_RETRIES + 1):
            with contextlib.suppress(ProcessDied):
                return in_process_of_its_own(partial(try_first_rows, *trial), supervisor.ask)
    else:
        remote = ray.remote(num_cpus=plan.task_cpus, max_retries=TASK_RETRIES)(try_first_rows)
        with contextlib.suppress(ray.exceptions.WorkerCrashedError):
            return ray.get(remote.remote(*trial))
    raise StageFailed(
        f"the steps' process ended {TASK_RETRIES + 1} times while {count} rows were tried: they crash, or "
        "take longer than row_timeout_seconds, whatever the row.",
        "preprocess",
        "WorkerCrashedError",
    )
