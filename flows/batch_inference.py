"""The flow: ingest -> shuffle -> preprocess -> infer -> write, for one partition of one job."""

from functools import partial
from typing import Any

import prefect.runtime
from prefect import Task, flow, get_run_logger
from prefect.futures import PrefectFuture

from overnight.flows.job.chain import links
from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.job.parameters import Day, Reason, RowLimit, Setting
from overnight.flows.ledger.artifacts import partitions_shown
from overnight.flows.runs.attempt import (
    bury_publisher,
    fresh_receipt,
    is_publisher_dead,
    opened,
)
from overnight.flows.runs.cancellation import cancellable
from overnight.flows.runs.crash_recovery import after_crashes
from overnight.flows.runs.flow_run_name import invalid, named_if_invalid
from overnight.flows.runs.gpu_slots import gpus_held
from overnight.flows.runs.retries import run_task
from overnight.flows.runs.run import describe_run
from overnight.flows.runs.task_runner import OvernightTaskRunner
from overnight.flows.runs.user_output import printed_shown
from overnight.flows.schedule.catch_up import skipped
from overnight.flows.schedule.lookback import look_back
from overnight.flows.schedule.run_partition import own_partition
from overnight.tasks.infer.task import Inference, begin_trials, infer
from overnight.tasks.ingest.task import ingest
from overnight.tasks.preprocess.task import begin_steps, preprocess
from overnight.tasks.resources.cluster import read_cluster
from overnight.tasks.resources.plan import Plan
from overnight.tasks.resources.planner import make_plan
from overnight.tasks.shuffle.task import shuffle
from overnight.tasks.state.run import Run
from overnight.tasks.workers.supervisor import supervised
from overnight.tasks.write.task import begin_writer, published_already, stage, write


def _backfill() -> str:
    """Return the id of the backfill that this run belongs to, or an empty string."""
    tags = prefect.runtime.flow_run.tags
    return next((tag.partition(":")[2] for tag in tags if tag.startswith("backfill:")), "")


@flow(name="batch-inference", task_runner=OvernightTaskRunner(), persist_result=False)
@cancellable
def batch_inference(
    partition: Day = "",
    force: bool = False,
    reason: Reason = "",
    limit_rows: RowLimit = 0,
    settings: list[Setting] = [],  # noqa: B006 - Prefect shows it in the form; nothing changes it
    *,
    job: str,
) -> Any:
    """Run one partition of a job and publish it. A partition that is published and not stale stays as it is.

    Args:
        partition: The day to run, as YYYY-MM-DD, or `all` if the source has no days. Empty: the day that is due.
        force: Run the partition again although it is published and not stale.
        reason: The reason, recorded in the receipt.
        limit_rows: Run only this number of rows and publish them as a sample, apart from real data. 0: all rows.
        settings: Settings of the job file to override for this run, each written as KEY=VALUE.
        job: The job file, as a path where the flow runs. The deployment sets it.
    """
    with named_if_invalid(invalid(job)):
        file = JobFile(job)
        loaded = file.job(settings)
        taken = own_partition(loaded, partition)
    if state := after_crashes(loaded.retries.attempts) or skipped(loaded, partition):
        return state
    day = taken.partition
    run = describe_run(loaded, day, reason, limit_rows, _backfill(), taken.scheduled_for)
    if not force and (published := fresh_receipt(loaded, run)):
        get_run_logger().info("%s/%s is published and not stale: it stays as it is", loaded.name, day)
        if is_publisher_dead(run, published):
            bury_publisher(run)
        look_back(loaded, run, partition)
        return published
    with partitions_shown(file, run.backfill), opened(loaded, run, force) as run:
        plan = make_plan(loaded.models, *read_cluster())
        with supervised(run), printed_shown(run):
            receipt = run_tasks(loaded, plan, run)
    look_back(loaded, run, partition)
    return receipt


def run_tasks(job: Job, plan: Plan, run: Run) -> dict[str, Any]:
    """Run the five tasks in order, each through Ray, and return the receipt. The first error ends the run."""
    if published := published_already(run):
        return published
    begin_steps()
    begin_writer()
    waits = getattr(job.source, "wait_for", None)
    chain = links(job)
    trials = begin_trials(run, chain, plan) if not waits else [None] * len(chain)
    sink = job.sink_for(run)
    inference = Inference(chain, sink.keep_columns, sink.rows_per_part, plan, trials)
    staging = partial(stage, sink, job.checks)

    def done(task: Task[..., Any], *arguments: Any) -> PrefectFuture[Any]:
        return run_task(task, job.retries, run, *arguments)

    rows = done(ingest, job.source)
    with gpus_held(plan.gpus):  # after ingest, because ingest may wait for inputs
        rows = done(shuffle, job.shuffle, rows)
        rows = done(preprocess, job.steps, plan, rows)
        streamed = done(infer, inference, staging, rows)
    receipt = done(write, sink, job.checks, job.source.allow_empty, plan, job.settings(), streamed)
    return dict(receipt.result())
