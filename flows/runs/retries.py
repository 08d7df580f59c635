"""Try again what died, `retries.attempts` times: a task of a run, and a deployment's run whose process died.

Prefect tries a failed task again in the task's process, so the flow does so if that process died. Prefect's runner, or
missing heartbeats, set a flow run to Crashed, and an automation (`deployments/automations`) schedules it again.
Staged parts are kept in all cases.
"""

import contextlib
import re
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import prefect.runtime
from prefect import Task, get_run_logger
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import State, StateType, TaskRun
from prefect.futures import PrefectFuture
from prefect.states import Cancelled, Completed, Crashed

from overnight.flows.job.retries import Retries
from overnight.flows.runs.cancellation import pause
from overnight.flows.runs.local_ray import RayEnded
from overnight.flows.runs.task_future import OvernightFuture
from overnight.tasks.errors import OvernightError, ServiceUnavailable, WorkerLost, explain
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor

TASKS_WITH_FILES = (
    "infer",
    "write",
)  # their files carry the attempt's name, so that no try replaces the files of another
JITTER = 0.5  # of a delay, so that the runs of a cluster do not all come back at the same time
REPEATED_REPORT_SECONDS = 10


class TooManyCrashes(OvernightError):
    """Raised when the process of a flow run died `retries.attempts` times in a row."""


def run_task(task: Task[..., Any], retries: Retries, run: Run, *arguments: Any) -> PrefectFuture[Any]:
    """Run a task, and return the future of the try that succeeded. Raise the error of the last try, with its stage."""
    delays = retries.delays()
    options: dict[str, Any] = {
        "retries": len(delays),
        "retry_delay_seconds": delays,
        "retry_jitter_factor": JITTER,
        "retry_condition_fn": may_pass,
    }
    number = 1
    while True:
        future = task.with_options(**options).submit(run, *arguments)
        if isinstance(future, OvernightFuture):
            future.stop_stream = partial(supervisor.stop_stream, run)
        try:
            future.result()
            return future
        except Exception as exception:
            error = explain(exception, task.name)
            is_last = number == retries.attempts or isinstance(error, RayEnded)
            if not future.state.is_crashed() or is_last:
                raise error from None
        get_run_logger().warning("the process of %s died (%s); it starts again", task.name, error)
        supervisor.report(run, task.name, "the process of the task died, and the task was started again")
        pause(delays[number - 1])
        number += 1
        if task.name in TASKS_WITH_FILES:
            run = run.as_new_attempt()
        options["task_run_name"] = f"{task.name} (attempt {number} of {retries.attempts}: worker died)"


def may_pass(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Return True if another try may succeed: storage did not answer, or a worker or a node was lost."""
    error = state.result(raise_on_failure=False)
    return isinstance(explain(error, task.name), WorkerLost | ServiceUnavailable)


def after_crashes(attempts: int) -> State | None:
    """Set the task runs that died with the process to Crashed, if this start of the flow run follows a crash.

    Return the state Cancelled if a user had cancelled the run: a killed process counts as crashed, and is restarted.
    """
    if prefect.runtime.flow_run.run_count < 2:
        return None
    run_id = UUID(prefect.runtime.flow_run.id)
    with get_client(sync_client=True) as client:
        states = sorted(client.read_flow_run_states(run_id), key=lambda state: state.timestamp)
        crashes = crashes_in_a_row(states)
        if crashes:
            _end_task_runs(client, run_id)
    if was_cancelled(states):
        return Cancelled(message="A user cancelled the run, and its process died before it could end.")
    if crashes >= attempts:
        raise TooManyCrashes(
            f"the process of this run died {crashes} times, and retries.attempts of the job is {attempts}. Read the "
            "logs of the machine that ran it: the usual cause is too little memory. Staged parts are kept. Retry this "
            "run, or run the partition again, to resume from them."
        )
    return None


def end_dead_run(flow_run: str) -> None:
    """Set a flow run without a deployment to Crashed, after its process died while it held the partition."""
    _end_run(flow_run, Crashed(message="The process of this run died. A later run took over its partition."))


def end_published_run(flow_run: str) -> None:
    """Set a flow run without a deployment to Completed, if its process died and a later run completed its publish."""
    _end_run(flow_run, Completed(message="The process of this run died while it published. A later run completed it."))


def _end_run(flow_run_id: str, state: State) -> None:
    """Set a run without a deployment to this state. Errors are ignored, because this is only bookkeeping."""
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(flow_run_id))
        if run.deployment_id is None and run.state_type in (StateType.RUNNING, StateType.CRASHED):
            _end_task_runs(client, run.id)  # Crashed: an automation ended the run, but not its tasks
            if run.state_type != state.type:
                client.set_flow_run_state(run.id, state, force=True)


def _end_task_runs(client: SyncPrefectClient, run_id: UUID) -> None:
    of_run = FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
    for task_run in client.read_task_runs(flow_run_filter=of_run):
        if task_run.state_type in (StateType.PENDING, StateType.RUNNING):
            state: State = Crashed(message="The process of the flow run died.")
            client.set_task_run_state(task_run.id, state, force=True)


def crashes_in_a_row(states: Sequence[State]) -> int:
    """Return the number of crashes since the run last ended in another way. `states` are in order of time.

    Several reporters may report one death, so a crash counts only if a new process died.
    """
    count = 0
    has_run = False
    last_crash: datetime | None = None
    reporters: set[str] = set()  # of the death that was counted last
    for state in states:
        if state.is_running():
            has_run = True
        elif state.is_crashed():
            reporter = re.sub(r"[-\d]+.*", "", state.message or "")  # its words before the exit status
            is_new = has_run or last_crash is None
            if not is_new and reporter in reporters and last_crash:  # a new process may have died before it ran
                is_new = (state.timestamp - last_crash).total_seconds() > REPEATED_REPORT_SECONDS
            if is_new:
                count += 1
                reporters = set()
            reporters.add(reporter)
            has_run = False
            last_crash = state.timestamp
        elif state.is_final():
            count = 0
    return count


def was_cancelled(states: Sequence[State]) -> bool:
    """Return True if a user cancelled the run and did not schedule it again. `states` are in order of time."""
    is_over = False
    before: State | None = None
    for state in states:
        if state.is_cancelling() or state.is_cancelled():
            is_over = True
        elif state.is_scheduled() and before and before.is_cancelled():
            is_over = False
        before = state
    return is_over
