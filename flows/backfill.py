"""Run many partitions of a job: plan them, run each as its own flow run, and report the results.

A backfill from the command line runs all partitions in its own process, on one Ray. A deployment's backfill does the
same while the median duration of the partitions is at most `SMALL_SECONDS`. Otherwise it starts runs of the job's
deployment, which wait in the queue `backfill`.
"""

import contextvars
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from statistics import median
from typing import Annotated, Any
from uuid import UUID

import prefect.runtime
from prefect import flow, get_run_logger
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from pydantic import Field

from overnight.flows.backfill_children import ChildRunSpec, Outcome, run_child
from overnight.flows.backfill_plan import (
    DEFAULT_SELECT,
    Order,
    Request,
    Select,
    Step,
    entries_of,
    left_out,
    nothing_to_do,
    planned,
    read_record,
    summary,
    write_record,
)
from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.job.parameters import Reason, Setting
from overnight.flows.ledger.artifacts import show_partitions
from overnight.flows.runs.cancellation import INTERRUPTIONS, cancellable, stoppable
from overnight.flows.runs.crash_recovery import after_crashes
from overnight.flows.runs.current_task import is_run_of_deployment
from overnight.flows.runs.failed_state import in_one_sentence
from overnight.flows.runs.flow_run_name import named_if_invalid, rename_flow_run
from overnight.flows.runs.local_ray import RayEnded
from overnight.flows.runs.task_runner import OvernightTaskRunner
from overnight.tasks.artifacts import artifact_key, dispensable
from overnight.tasks.errors import OvernightError, first_line
from overnight.tasks.state.lease import LeaseLost, PartitionBusy

SMALL_SECONDS = 60.0  # a deployment's backfill runs longer partitions in processes of their own
SECONDS_BETWEEN = 1.0
SHOWN = {"is_shown": True}  # the command line shows these records of the log


class BackfillFailed(OvernightError):
    """Raised at the end of a backfill if a partition failed or was cancelled."""

    stage = ""  # each partition has its own


def backfill_id(flow_run_id: UUID | str) -> str:
    """Return the id of the backfill that a flow run begins: the last eight characters of the run's id.

    A restart of that run has the same id, and so continues the same backfill.
    """
    return str(flow_run_id)[-8:]


def _read_job_file(path: str, range_name: str) -> JobFile:
    """Read the job file, and name the flow run `job/2026-11-01..2026-11-07`."""
    with named_if_invalid(f"{Path(path).stem}/{range_name}"):
        file = JobFile(path, is_run_of_deployment())
        rename_flow_run(f"{file.job().name}/{range_name}")
    return file


@flow(name="backfill", persist_result=False)
@cancellable
@in_one_sentence
def backfill(
    start: date | None = None,
    end: date | None = None,
    select: list[Select] = list(DEFAULT_SELECT),  # noqa: B006 - Prefect shows it in the form
    order: Order = "oldest",
    max_concurrent: Annotated[int, Field(ge=1)] = 1,
    stop_on_failure: bool = False,
    dry_run: bool = False,
    reason: Reason = "",
    settings: list[Setting] = [],  # noqa: B006 - as above
    resume: str = "",
    *,
    job: str,
) -> Any:
    """Run the partitions of a range of dates that are missing, failed or stale. Each publishes separately.

    Args:
        start: The first day, as YYYY-MM-DD.
        end: The last day, as YYYY-MM-DD; it runs too.
        select: The statuses of the partitions to run. `all` also runs published partitions again. `stale` lists the
            inputs again. `quarantined` runs only the quarantined rows of published partitions.
        order: The day to begin with, `oldest` or `newest`.
        max_concurrent: The number of partitions that run at the same time.
        stop_on_failure: Start no more partitions after one has failed.
        dry_run: Only show the plan: partitions, reasons and estimated time.
        reason: The reason, recorded in the receipts.
        settings: Settings of the job file to override in this backfill, each written as KEY=VALUE. Values
            alone, such as numbers and prompts, unless the job file has `allow_settings`.
        resume: The id of an earlier backfill. Its unfinished partitions run, with its own range and settings.
        job: The job file, as a path where the flow runs. The deployment sets it.
    """
    file = _read_job_file(job, f"resume {resume}" if resume else f"{start}..{end}")
    if state := after_crashes(file.job().retries.attempts):
        return state
    own_id = backfill_id(prefect.runtime.flow_run.id)
    loaded, request, steps = planned(
        file, resume or own_id, start, end, select, order, settings, reason, is_resumed=bool(resume)
    )
    why_none = "" if steps else nothing_to_do(loaded, request)
    if why_none:
        get_run_logger().info(why_none)
    elif not resume and (others := left_out(loaded, request, steps)):
        get_run_logger().info("left out: %s", others)
    _show_plan(loaded, request, steps, why_none)
    if dry_run:
        return [step.as_json() for step in steps]
    if not read_record(loaded, request.id):
        write_record(loaded, request, steps)
    get_run_logger().info("backfill %s of %s: %d partitions to run", request.id, loaded.name, len(steps))
    outcomes: list[Outcome] = []
    rest = f"Run what is left: overnight backfill {job} --resume {request.id}"
    try:
        tell = _teller(loaded, len(steps), outcomes)
        _run_all(loaded, job, request, steps, max_concurrent, stop_on_failure, tell)
    except INTERRUPTIONS:
        get_run_logger().warning(rest)
        raise
    finally:
        _show_outcomes(loaded, request, steps, outcomes, why_none)
        show_partitions(file.job(), request.start, request.end, UUID(prefect.runtime.flow_run.id))
    published = {entry.partition for entry in entries_of(loaded, request, steps) if entry.status == "published"}
    if failed := [outcome for outcome in outcomes if not is_published(outcome, published)]:
        reason = first_line(str(failed[0].error)).rstrip(".")
        raise BackfillFailed(
            f"{len(failed)} of {len(steps)} partitions failed, first {failed[0].partition}: {reason}.\n{rest}"
        )
    return [entry.as_json() for entry in entries_of(loaded, request, steps)]


def is_published(outcome: Outcome, published: Collection[str]) -> bool:
    """Return True if a partition is published: by its run here, or by another run that held it meanwhile."""
    by_another = isinstance(outcome.error, PartitionBusy | LeaseLost) and outcome.partition in published
    return outcome.status == "published" or by_another


def _run_all(
    job: Job,
    job_path: str,
    request: Request,
    steps: Sequence[Step],
    max_concurrent: int,
    stop_on_failure: bool,
    ended: Callable[[Outcome], None],
) -> None:
    """Run the steps in order, and call `ended` with each outcome. An interruption also stops the child runs."""
    waiting, under_way = deque(steps), set[Future[Outcome]]()
    seconds = [step.entry.receipt["seconds"] for step in steps if step.entry.receipt]
    is_warm = False
    with ExitStack() as ray, stoppable() as stopping, ThreadPoolExecutor(max_concurrent, "partition") as pool:
        try:
            while waiting or under_way:
                while waiting and len(under_way) < max_concurrent:
                    step = waiting.popleft()
                    child = ChildRunSpec(
                        job,
                        job_path,
                        request.id,
                        step.partition,
                        step.force,
                        request.reason,
                        request.settings,
                        step.is_retry,
                    )
                    is_small = not seconds or median(seconds) <= SMALL_SECONDS
                    is_ours = is_small or not prefect.runtime.deployment.id
                    if is_ours and not is_warm:
                        ray.enter_context(OvernightTaskRunner())  # one Ray for all partitions
                        is_warm = True
                    context = contextvars.copy_context()  # a thread has no context of its own
                    why = ", ".join(map(first_line, step.why))
                    get_run_logger().info("%s started: %s", step.partition, why, extra=SHOWN)
                    under_way.add(pool.submit(context.run, run_child, child, not is_ours))
                done, under_way = wait(under_way, SECONDS_BETWEEN, FIRST_COMPLETED)
                if stopping.is_set():  # by `stoppable` around the backfill
                    raise KeyboardInterrupt
                for outcome in [future.result() for future in done]:
                    if outcome.receipt:
                        seconds.append(outcome.receipt["seconds"])
                    if isinstance(outcome.error, RayEnded) or (outcome.error and stop_on_failure):
                        waiting.clear()
                    ended(outcome)
        except BaseException:
            stopping.set()  # before the pool waits for its threads
            raise


@dispensable()
def _show_plan(job: Job, request: Request, steps: Sequence[Step], why_none: str) -> None:
    rows = [{**step.as_json(), "why": ", ".join(step.why)} for step in steps]
    days = f"{request.start} to {request.end}"
    create_table_artifact(
        key=artifact_key(job.name, "backfill-plan"),
        description=f"Backfill {request.id} of {job.name}, {days}: {why_none or summary(steps)}",
        table=rows or [{"partition": "none", "why": why_none}],
    )


@dispensable()
def _show_outcomes(
    job: Job, request: Request, steps: Sequence[Step], outcomes: Sequence[Outcome], why_none: str
) -> None:
    errors = {outcome.partition: outcome.error for outcome in outcomes}
    before = {step.partition: step.entry.status for step in steps}
    rows = [
        {
            "partition": entry.partition,
            "before": before[entry.partition],
            "now": entry.status,
            "rows in": (entry.receipt or {}).get("rows_in"),
            "rows out": (entry.receipt or {}).get("rows_out"),
            "quarantined": (entry.receipt or {}).get("rows_quarantined"),
            "seconds": (entry.receipt or {}).get("seconds"),
            "why": first_line(str(errors.get(entry.partition) or ", ".join(entry.why))),
        }
        for entry in entries_of(job, request, steps)
    ]
    create_table_artifact(
        key=artifact_key(job.name, "backfill"),
        description=f"Backfill {request.id} of {job.name}: {why_none or 'the result of each partition'}",
        table=rows or [{"partition": "none", "why": why_none}],
    )


def _teller(job: Job, total: int, outcomes: list[Outcome]) -> Callable[[Outcome], None]:
    """Return a function that adds an outcome to `outcomes`, logs it, and updates the progress artifact."""
    artifact: Any = None
    with dispensable():
        key = artifact_key(job.name, "progress-backfill")
        artifact = create_progress_artifact(0.0, key=key, description=f"backfill: 0 of {total}")

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done = f"{len(outcomes)} of {total}"
        level = logging.ERROR if outcome.error else logging.INFO
        get_run_logger().log(level, "%s: %s", done, outcome, extra=SHOWN)
        said = f"backfill: {done}: {outcome.partition} {outcome.status}"
        with dispensable():
            if artifact:
                update_progress_artifact(artifact, 100 * len(outcomes) / total, description=said)

    return tell
