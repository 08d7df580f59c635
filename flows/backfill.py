"""Run many partitions of a job: plan them, run each as its own flow run, and report the results.

A backfill from the command line runs all partitions in its own process, on one Ray. A deployment's backfill does the
same while the median duration of the partitions is at most `SMALL_SECONDS`. Otherwise it starts runs of the job's
deployment, which wait in the queue `backfill`.
"""

import contextvars
import logging
from collections import deque
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Annotated, Any
from uuid import UUID

import prefect.runtime
from prefect import flow, get_run_logger
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from pydantic import Field

from overnight.flows.backfill_budget import BudgetLeft, ended_by, limits_of
from overnight.flows.backfill_children import ChildRunSpec, Outcome, run_child
from overnight.flows.backfill_plan import (
    DEFAULT_SELECT,
    Order,
    Request,
    Select,
    Step,
    entries_of,
    left_out,
    note_spent,
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
from overnight.flows.ledger.forecast import together
from overnight.flows.ledger.partition_status import read_ledger
from overnight.flows.ledger.staleness import some
from overnight.flows.runs.cancellation import INTERRUPTIONS, cancellable, stoppable
from overnight.flows.runs.flow_run import in_one_sentence, is_run_of_deployment, named_if_invalid, rename_flow_run
from overnight.flows.runs.local_ray import RayEnded
from overnight.flows.runs.retries import after_crashes
from overnight.flows.runs.task_runner import OvernightTaskRunner
from overnight.tasks.artifacts import artifact_key, dispensable
from overnight.tasks.engine.progress_text import left_of
from overnight.tasks.errors import BudgetReached, JobError, OvernightError, first_line
from overnight.tasks.state.lease import LeaseLost, PartitionBusy

SMALL_SECONDS = 60.0  # a deployment's backfill runs longer partitions in processes of their own
SECONDS_BETWEEN = 1.0
SHOWN = {"is_shown": True}  # the command line shows these records of the log


class BackfillFailed(OvernightError):
    """Raised at the end of a backfill if a partition failed or was cancelled."""

    stage = ""  # each partition has its own


def backfill_id(flow_run_id: UUID | str) -> str:
    """Return the id of the backfill that a flow run begins. A restart of that run continues the same backfill."""
    return str(flow_run_id)[-8:]


def scope_of(start: date | None, end: date | None, resume: str) -> str:
    """Return the part of a backfill's name behind that of its job: its range, or the backfill that it resumes."""
    if resume:
        return f"resume {resume}"
    return f"{start}..{end}" if start else "all"


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
    where: list[str] = [],  # noqa: B006 - as above
    budget: list[str] = [],  # noqa: B006 - as above
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
        where: Only partitions that meet these conditions, each written as COLUMN=VALUE, such as region=eu.
        budget: Limits of all runs together, each written as cost=40, tokens=2e9 or minutes=300. Partitions run in order
            until the next one does not fit.
        job: The job file, as a path where the flow runs. The deployment sets it.
    """
    scope = scope_of(start, end, resume)
    with named_if_invalid(f"{Path(job).stem}/{scope}"):
        file = JobFile(job, is_run_of_deployment())
        rename_flow_run(f"{file.job().name}/{scope}")
    if state := after_crashes(file.job().retries.attempts):
        return state
    own_id = backfill_id(prefect.runtime.flow_run.id)
    plan = planned(
        file, resume or own_id, start, end, select, order, settings, reason, where, budget, is_resumed=bool(resume)
    )
    run = _Backfill(job, *plan, budget_of(file, plan[1], max_concurrent))
    run.show_plan(is_new=not resume)
    if dry_run:
        return [step.as_json() for step in run.steps]
    return run.run(max_concurrent, stop_on_failure, unchanged_job=file.job())


def budget_of(file: JobFile, request: Request, max_concurrent: int) -> BudgetLeft:
    """Return what is left of a backfill's budget, also if it resumes."""
    limits = limits_of(file, request.settings, request.budget)
    if limits and max_concurrent > 1:
        raise JobError(f"budget: expected max_concurrent 1 with it, found {max_concurrent}.")
    record = read_record(file.job(request.settings), request.id) or {}
    return BudgetLeft(limits, dict(record.get("spent", {})))


def is_published(outcome: Outcome, published: Collection[str]) -> bool:
    """Return True if a partition is published: by its run here, or by another run that held it meanwhile."""
    is_held_by_other = isinstance(outcome.error, PartitionBusy | LeaseLost)
    return outcome.status == "published" or (is_held_by_other and outcome.partition in published)


@dataclass
class _Backfill:
    """A backfill that runs: its plan, and the outcomes so far. `reason_for_none` explains why there are no steps."""

    job_path: str
    job: Job
    request: Request
    steps: list[Step]
    budget: BudgetLeft
    outcomes: list[Outcome] = field(default_factory=list)
    reason_for_none: str = ""
    begun: dict[str, Step] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)  # of the newest run, by the budget of the backfill
    is_spent: bool = False

    @property
    def rest(self) -> str:
        if self.is_spent:
            budget = "".join(f" --budget {text}" for text in self.request.budget)
            return f"Run what is left with a new budget: overnight plan {self.job_path} --apply{budget}"
        return f"Run what is left: overnight backfill {self.job_path} --resume {self.request.id}"

    def show_plan(self, is_new: bool) -> None:
        """Show the plan as a table in the Prefect UI, and in the log which partitions of the range do not run."""
        if not self.steps:
            self.reason_for_none = nothing_to_do(self.job, self.request)
            get_run_logger().info(self.reason_for_none)
        elif is_new and (counts := left_out(self.job, self.request, self.steps)):
            get_run_logger().info("left out: %s", counts)
        rows = [{**step.as_json(), "why": ", ".join(step.why)} for step in self.steps]
        content = self.reason_for_none or summary(self.steps)
        self._show_table("backfill-plan", rows, f", {self.request.scope}: {content}")

    @dispensable()
    def _show_table(self, name: str, rows: list[dict[str, Any]], description: str) -> None:
        create_table_artifact(
            key=artifact_key(self.job.name, name),
            description=f"Backfill {self.request.id} of {self.job.name}{description}",
            table=rows or [{"partition": "none", "why": self.reason_for_none}],
        )

    def run(self, max_concurrent: int, stop_on_failure: bool, unchanged_job: Job) -> list[dict[str, Any]]:
        """Run the steps, and return the status of each partition. Raise `BackfillFailed` if one is not published."""
        request, steps = self.request, self.steps
        if not read_record(self.job, request.id):
            write_record(self.job, request, steps)
        log = get_run_logger()
        log.info("backfill %s of %s: %d partitions to run", request.id, self.job.name, len(steps))
        try:
            self._run_steps(max_concurrent, stop_on_failure)
        except INTERRUPTIONS:
            log.warning(self.rest)
            raise
        finally:
            self._show_outcomes()
            show_partitions(unchanged_job, request.start, request.end, UUID(prefect.runtime.flow_run.id))
        entries = entries_of(self.job, request, steps)
        partitions = {entry.partition for entry in entries if entry.status == "published"}
        failures = [outcome for outcome in self.outcomes if not is_published(outcome, partitions)]
        if failures:
            reason = first_line(str(failures[0].error)).rstrip(".")
            counts = f"{len(failures)} of {len(steps)} partitions failed"
            raise BackfillFailed(f"{counts}, first {failures[0].partition}: {reason}.\n{self.rest}")
        return [entry.as_json() for entry in entries]

    def _run_steps(self, max_concurrent: int, stop_on_failure: bool) -> None:
        """Run the steps in order. An interruption also stops the child runs."""
        waiting, running = deque(self.steps), set[Future[Outcome]]()
        seconds = [step.entry.receipt["seconds"] for step in self.steps if step.entry.receipt]
        progress = self._make_progress()
        is_warm = False
        with ExitStack() as ray, stoppable() as stopping, ThreadPoolExecutor(max_concurrent, "partition") as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < max_concurrent:
                        if refusal := self.budget.refusal(waiting[0]):
                            self._leave(waiting, refusal)
                            break
                        is_small = not seconds or median(seconds) <= SMALL_SECONDS
                        is_ours = is_small or not prefect.runtime.deployment.id
                        if is_ours and not is_warm:
                            ray.enter_context(OvernightTaskRunner())  # one Ray for all partitions
                            is_warm = True
                        running.add(self._start(pool, waiting.popleft(), is_ours))
                    ends, running = wait(running, SECONDS_BETWEEN, FIRST_COMPLETED)
                    if stopping.is_set():  # by `stoppable` around the backfill
                        raise KeyboardInterrupt
                    for outcome in map(Future.result, ends):
                        if outcome.receipt:
                            seconds.append(outcome.receipt["seconds"])
                        if isinstance(outcome.error, RayEnded) or (outcome.error and stop_on_failure):
                            waiting.clear()
                        self._note(outcome, progress)
                        if refusal := self._charge(outcome):
                            self._leave(waiting, refusal)
            except BaseException:
                stopping.set()  # before the pool waits for its threads
                raise

    def _start(self, pool: ThreadPoolExecutor, step: Step, is_ours: bool) -> Future[Outcome]:
        """Start the run of a step in a thread: here if it `is_ours`, otherwise through the job's deployment."""
        context = contextvars.copy_context()  # a thread has no context of its own
        reasons = ", ".join(map(first_line, step.why))
        get_run_logger().info("%s started: %s", step.partition, reasons, extra=SHOWN)
        self.begun[step.partition], self.limits = step, self.budget.settings(self.job, step)
        request = replace(self.request, settings=(*self.request.settings, *self.limits))
        child = ChildRunSpec(self.job, self.job_path, request, step)
        return pool.submit(context.run, run_child, child, not is_ours)

    def _leave(self, waiting: deque[Step], refusal: str) -> None:
        """Leave all waiting steps for the next time, because of the budget."""
        self.is_spent = True
        if waiting:
            names = some([step.partition for step in waiting])
            get_run_logger().warning("left for the next time: %s. %s", names, refusal, extra=SHOWN)
        waiting.clear()

    def _charge(self, outcome: Outcome) -> str:
        """Count what a run paid. Return why no other may begin, or an empty text."""
        if not self.budget.limits:
            return ""
        if outcome.receipt and outcome.receipt.get("backfill") != self.request.id:
            return ""  # another run published it meanwhile
        [entry] = read_ledger(self.job, only=[outcome.partition])
        self.budget.charge(self.begun[outcome.partition], outcome.receipt or entry.failure)
        note_spent(self.job, self.request, self.budget.spent)
        is_reached = outcome.error and outcome.error.error_type == BudgetReached.__name__
        return ended_by(self.limits, first_line(str(outcome.error))) if is_reached else ""

    def _make_progress(self) -> Any:
        with dispensable():
            key = artifact_key(self.job.name, "progress-backfill")
            return create_progress_artifact(0.0, key=key, description=f"backfill: 0 of {len(self.steps)}")
        return None

    def _note(self, outcome: Outcome, progress: Any) -> None:
        self.outcomes.append(outcome)
        count, total = len(self.outcomes), len(self.steps)
        level = logging.ERROR if outcome.error else logging.INFO
        get_run_logger().log(level, "%s: %s", f"{count} of {total}", outcome, extra=SHOWN)
        description = f"backfill: {count} of {total}: {outcome.partition} {outcome.status}"
        if remaining := self._time_left():
            description += f", {remaining}, one after the other"
        with dispensable():
            if progress:
                update_progress_artifact(progress, 100 * count / total, description=description)

    def _time_left(self) -> str:
        """Return the time that the other partitions take, one after the other, as text; empty if it is unknown."""
        partitions = {outcome.partition for outcome in self.outcomes}
        return left_of(together([step.time for step in self.steps if step.time and step.partition not in partitions]))

    @dispensable()
    def _show_outcomes(self) -> None:
        errors = {outcome.partition: outcome.error for outcome in self.outcomes}
        before = {step.partition: step.entry.status for step in self.steps}
        rows = []
        for entry in entries_of(self.job, self.request, self.steps):
            receipt = entry.receipt or {}
            row = {
                "partition": entry.partition,
                "before": before[entry.partition],
                "now": entry.status,
                "rows in": receipt.get("rows_in"),
                "rows out": receipt.get("rows_out"),
                "quarantined": receipt.get("rows_quarantined"),
                "seconds": receipt.get("seconds"),
                "why": first_line(str(errors.get(entry.partition) or ", ".join(entry.why))),
            }
            rows.append(row)
        self._show_table("backfill", rows, f": {self.reason_for_none or 'the result of each partition'}")
