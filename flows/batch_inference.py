"""The flow: ingest -> shuffle -> preprocess -> infer -> write, for one partition of one job."""

from dataclasses import replace
from typing import Any

import prefect.runtime
from prefect import Task, flow, get_run_logger
from prefect.futures import PrefectFuture
from prefect.states import Completed

from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.job.parameters import Day, Reason, RowLimit, Setting
from overnight.flows.job.pipeline import compile_job, with_memory
from overnight.flows.ledger.artifacts import partitions_shown
from overnight.flows.ledger.published_rows import keep_sample
from overnight.flows.notices.run_notice import Notice, noticed
from overnight.flows.runs.attempt import bury_publisher, is_publisher_dead, opened
from overnight.flows.runs.batches import wait_for_batches, warn_of_forsaken
from overnight.flows.runs.cancellation import cancellable, completed
from overnight.flows.runs.continuation import published_or_scope
from overnight.flows.runs.flow_run import (
    in_one_sentence,
    invalid,
    is_run_of_deployment,
    named_if_invalid,
    unchanged_message,
)
from overnight.flows.runs.gpu_slots import gpus_held
from overnight.flows.runs.local_ray import begin_imports
from overnight.flows.runs.retries import after_crashes, run_task
from overnight.flows.runs.run import describe_run
from overnight.flows.runs.run_log import followed, incidents_kept
from overnight.flows.runs.run_page import failure_shown, progress_shown, show_published
from overnight.flows.runs.task_runner import OvernightTaskRunner
from overnight.flows.schedule.catch_up import skipped
from overnight.flows.schedule.lookback import look_back
from overnight.flows.schedule.run_after import announce, run_later, waiting
from overnight.flows.schedule.run_partition import own_partition, start_others
from overnight.tasks.infer.kinds import engines
from overnight.tasks.infer.task import Inference, batched, begin_trials, infer, seal_requests
from overnight.tasks.ingest.task import ingest
from overnight.tasks.preprocess.task import preprocess
from overnight.tasks.resources.cluster import read_addable_nodes, read_nodes
from overnight.tasks.resources.plan import Plan
from overnight.tasks.resources.planner import make_plan
from overnight.tasks.shuffle.task import shuffle
from overnight.tasks.state.run import Run
from overnight.tasks.workers.supervisor import supervised
from overnight.tasks.write.task import PartStager, published_already, write


@flow(name="batch-inference", task_runner=OvernightTaskRunner(), persist_result=False)
@cancellable
@in_one_sentence
def batch_inference(
    partition: Day = "",
    force: bool = False,
    reason: Reason = "",
    limit_rows: RowLimit = 0,
    settings: list[Setting] = [],  # noqa: B006 - Prefect shows it in the form; nothing changes it
    retry_quarantined: bool = False,
    *,
    job: str,
) -> Any:
    """Run one partition of a job and publish it. A partition that is published and not stale stays as it is.

    Args:
        partition: The day to run, as YYYY-MM-DD, or `all` if the source has no days, or a name such as
            2026-11-19T05 or eu of a job with `partitions`. Empty: what is due.
        force: Run the partition again although it is published and not stale.
        reason: The reason, recorded in the receipt.
        limit_rows: Run only this number of rows and publish them as a sample, apart from real data. 0: all rows.
        settings: Settings of the job file to override for this run, each written as KEY=VALUE. Values alone,
            such as numbers and prompts, unless the job file has `allow_settings`.
        retry_quarantined: Run only the quarantined rows of the published partition, and publish them with its others.
        job: The job file, as a path where the flow runs. The deployment sets it.
    """
    with named_if_invalid(invalid(job)):
        file = JobFile(job, is_run_of_deployment())
        full_job = file.job(settings)
        own = own_partition(full_job, partition)
    with noticed(full_job, own.partition, job, limit_rows > 0) as notice:
        if state := after_crashes(full_job.retries.attempts) or skipped(full_job, partition):
            return state
        start_others(full_job, own)
        if not (force or limit_rows) and (state := waiting(full_job, own.partition)):
            return state
        tags = prefect.runtime.flow_run.tags
        backfill = next((tag.partition(":")[2] for tag in tags if tag.startswith("backfill:")), "")
        run = describe_run(full_job, own.partition, reason, limit_rows, backfill, own.scheduled_for)
        published, scope = published_or_scope(full_job, run, force, retry_quarantined)
        if published:
            if is_publisher_dead(run, published):
                bury_publisher(run)
                announce(full_job, run, published)
            look_back(full_job, run, partition)
            return Completed(message=unchanged_message(published, retry_quarantined), data=published)
        if scope.plan:
            get_run_logger().info(scope.announcement)
        with partitions_shown(file, run.backfill), opened(full_job, scope, force, notice) as run:
            receipt, message = run_open(full_job, replace(run, is_forced=force), notice)
    if not limit_rows:
        look_back(full_job, run, partition)
        run_later(full_job, run)
    return completed(message, receipt)


def run_open(job: Job, run: Run, notice: Notice) -> tuple[dict[str, Any], str]:
    """Run a partition that this process holds. Return its receipt, and the message of its state."""
    nodes = read_nodes()
    plan = make_plan(engines(job.models), nodes, read_addable_nodes(job.cluster, nodes))
    with failure_shown(run), supervised(run), incidents_kept(run), followed(run):
        receipt = run_tasks(job, plan, run)
    if run.limit_rows:
        keep_sample(job, receipt)
    verdict = notice.end(run, receipt)
    return receipt, show_published(run, receipt, verdict, job.sink_for(run).shown(run))


def run_tasks(job: Job, plan: Plan, run: Run) -> dict[str, Any]:
    """Run the five tasks in order, each through Ray, and return the receipt. The first error ends the run.

    `plan` has the number of workers of each model. If the run's rows are published already, return their receipt.
    """
    if receipt := published_already(run):
        return receipt
    begin_imports(job)
    job_then, sink = job.pinned(run), job.sink_for(run)
    pipeline = with_memory(compile_job(job_then), job_then, not run.is_forced)
    is_batched = batched(job.models, run) is not None
    warn_of_forsaken(run, job)
    if is_batched or getattr(job.source, "wait_for", None):
        trials = [None] * len(pipeline.links)
    else:
        trials = begin_trials(run, pipeline.links, plan)
    inference = Inference(pipeline.links, sink.part_size, plan, trials)
    stager = PartStager(sink, job.checks, pipeline.rules, progress_shown)

    def run_one(task: Task[..., Any], *arguments: Any) -> PrefectFuture[Any]:
        return run_task(task, job.retries, run, *arguments)

    rows = run_one(ingest, pipeline.source)
    if is_batched:
        rows = run_one(shuffle, pipeline.shuffle, rows)
        rows = run_one(preprocess, pipeline.steps, plan, rows)
        run_one(seal_requests, inference, rows)
        wait_for_batches(run, job)
    with gpus_held(plan.gpus, run.busy_timeout_seconds):  # after what waits: for inputs, or for batches
        if not is_batched:
            rows = run_one(shuffle, pipeline.shuffle, rows)
            rows = run_one(preprocess, pipeline.steps, plan, rows)
        stream = run_one(infer, inference, stager, rows)
    result = run_one(write, sink, job.checks, pipeline.rules, job.source.allow_empty, plan, job.settings(), stream)
    return dict(result.result())
