"""Run one partition of a backfill as its own flow run, which Prefect shows below the backfill's run.

The child runs in this process, or as a run of the job's deployment, which a worker takes from the queue `backfill`.
"""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import prefect.runtime
from prefect import Task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun, State, StateType, TaskRun
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Cancelled, Cancelling, Pending, Scheduled

from overnight.flows.backfill_plan import Request, Step
from overnight.flows.batch_inference import batch_inference
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import read_ledger
from overnight.flows.runs.cancellation import INTERRUPTIONS, RunCancelled, is_stopping
from overnight.flows.runs.prefect_internals import run_flow
from overnight.tasks.errors import OvernightError, StageFailed, explain, first_line

QUEUE = "backfill"
SECONDS_BETWEEN = 2.0
RESTART_SECONDS = 90.0  # an automation restarts a run whose process died within this time
STOP_SECONDS = 15.0  # Prefect's runner gives a cancelled flow 30 s
ENDED = [StateType.COMPLETED, StateType.FAILED, StateType.CANCELLED, StateType.CRASHED]


@dataclass(frozen=True)
class ChildRunSpec:
    job: Job
    job_path: str
    request: Request
    step: Step

    @property
    def name(self) -> str:
        return f"{self.job.name}/{self.step.partition}"

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "partition": self.step.partition,
            "force": self.step.force,
            "reason": self.request.reason,
            "limit_rows": 0,
            "settings": list(self.request.settings),
            "retry_quarantined": self.step.is_retry,
            "job": self.job_path,
        }

    @property
    def tags(self) -> list[str]:
        return [f"job:{self.job.name}", f"partition:{self.step.partition}", f"backfill:{self.request.id}"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one partition's run in a backfill. `status` is `published`, `failed` or `cancelled`.

    `receipt` is set if the run published its partition. Otherwise `error` is set.
    """

    partition: str
    status: str
    receipt: Mapping[str, Any] | None = None
    error: OvernightError | None = None

    def __str__(self) -> str:
        if self.error:
            stage = f" in {self.error.stage}" if self.error.stage and self.status == "failed" else ""
            return f"{self.partition} {self.status}{stage}: {first_line(str(self.error))}"
        receipt = self.receipt or {}
        counts = f"{receipt['rows_out']:,} rows, {receipt['rows_quarantined']:,} quarantined"
        return f"{self.partition} {self.status}: {counts}, {receipt['seconds']:,.1f} s"


def run_child(child: ChildRunSpec, is_deployed: bool) -> Outcome:
    """Run one partition of a backfill, wait for its end, and return the outcome. An error becomes an outcome, too."""
    partition = child.step.partition
    try:
        run = _run_deployed if is_deployed else _run_here
        return Outcome(partition, "published", run(child))
    except INTERRUPTIONS:
        return Outcome(partition, "cancelled", error=RunCancelled())
    except Exception as exception:
        error = explain(exception, "plan")
        return Outcome(partition, error.status, error=error)


def _run_here(child: ChildRunSpec) -> Mapping[str, Any]:
    """Run the child in this process, and return its receipt. Raise the error that ended it."""
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(
            batch_inference,
            child.name,
            child.parameters,
            state=Pending(),
            tags=child.tags,
            parent_task_run_id=_node_of_graph(client, child).id,
        )
    # Only automations of deployments need heartbeats, and a run takes up to a second to stop its own.
    settings = {} if prefect.runtime.deployment.id else {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    with temporary_settings(settings):
        receipt: dict[str, Any] = run_flow(batch_inference, flow_run=flow_run)  # type: ignore[assignment]
    return receipt


def _run_deployed(child: ChildRunSpec) -> Mapping[str, Any]:
    """Run the child through its deployment, and return its receipt from the ledger. Raise the error that ended it."""
    with get_client(sync_client=True) as client:
        flow_run = _under_way(client, child) or _start(client, child)
        while not (state := _final_state(client, flow_run.id)):
            if is_stopping():
                _cancel(client, flow_run.id)
                raise RunCancelled()
            time.sleep(SECONDS_BETWEEN)
    if state.is_cancelled():
        raise RunCancelled()
    partition = child.step.partition
    [entry] = read_ledger(child.job, only=[partition])
    if state.is_completed() and entry.receipt:
        return entry.receipt
    failure = entry.failure or {}
    message = failure.get("error_message") or "; ".join(entry.why) or state.message or state.name
    raise StageFailed(str(message), failure.get("stage"), failure.get("error_type", ""))


def _start(client: SyncPrefectClient, child: ChildRunSpec) -> FlowRun:
    name = f"{batch_inference.name}/{child.job.name}"
    try:
        deployment = client.read_deployment_by_name(name)
    except ObjectNotFound:
        raise OvernightError(f"expected a deployment {name}, found none. Call `overnight deploy`.") from None
    return client.create_flow_run_from_deployment(
        deployment.id,
        parameters={key: value for key, value in child.parameters.items() if key != "job"},
        state=Scheduled(),
        name=child.name,
        tags=child.tags,
        parent_task_run_id=_node_of_graph(client, child).id,
        work_queue_name=QUEUE if deployment.work_pool_name else None,
    )


def _under_way(client: SyncPrefectClient, child: ChildRunSpec) -> FlowRun | None:
    states = FlowRunFilterState(type=FlowRunFilterStateType(not_any_=ENDED))
    same = FlowRunFilter(tags=FlowRunFilterTags(all_=child.tags), state=states)
    runs = client.read_flow_runs(flow_run_filter=same)
    return next((run for run in runs if run.deployment_id), None)


def _node_of_graph(client: SyncPrefectClient, child: ChildRunSpec) -> TaskRun:
    """Create the task run that represents the child in the backfill's graph, as Prefect does for a subflow.

    Prefect's own keys count calls, and a restarted backfill makes other calls.
    """
    runtime = prefect.runtime.flow_run
    partition = child.step.partition
    return client.create_task_run(
        Task(name=partition, fn=batch_inference.fn),
        flow_run_id=UUID(runtime.id),
        dynamic_key=f"{partition}-{runtime.run_count}",
        name=partition,
        state=Pending(),
    )


def _final_state(client: SyncPrefectClient, run_id: UUID) -> State | None:
    """Return the final state of a run, or None. A crashed run ends after `RESTART_SECONDS`, because it may restart.

    Raise `ObjectNotFound` if a user deleted the run.
    """
    try:
        state = client.read_flow_run(run_id).state
    except ObjectNotFound:
        raise
    except Exception:
        return None  # the server is away; the caller tries again
    if state is None or not state.is_final():
        return None
    age = (datetime.now(UTC) - state.timestamp).total_seconds()
    may_restart = state.is_crashed() and age < RESTART_SECONDS
    return None if may_restart else state


def _cancel(client: SyncPrefectClient, run_id: UUID) -> None:
    """Cancel a run as the UI does. Return when the run has ended, at the latest after `STOP_SECONDS`."""
    deadline = time.monotonic() + STOP_SECONDS
    with contextlib.suppress(Exception):
        state = client.read_flow_run(run_id).state
        is_at_work = bool(state and (state.is_running() or state.is_pending()))
        client.set_flow_run_state(run_id, Cancelling() if is_at_work else Cancelled(), force=not is_at_work)
        while time.monotonic() < deadline and not _final_state(client, run_id):
            time.sleep(0.5)
