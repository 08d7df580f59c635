"""Recover a deployment's flow run after its process or its machine died.

Prefect's runner reports a process that died. If the runner died too, the heartbeats stop. In both cases the server sets
the run to Crashed, and an automation (`deployments/automations`) schedules the same run again.
"""

import contextlib
import re
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import prefect.runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import State, StateType
from prefect.states import Cancelled, Completed, Crashed

from overnight.tasks.errors import OvernightError

TOLD_TWICE_SECONDS = 10


class TooManyCrashes(OvernightError):
    """Raised when the process of a flow run died `retries.attempts` times in a row."""


def after_crashes(attempts: int) -> State | None:
    """Set the task runs that died with the process to Crashed, if this start of the flow run follows a crash.

    Return the state Cancelled if a user had cancelled the run, otherwise None. A cancelled process that is killed
    before its end counts as crashed, and the automation restarts it. Raise `TooManyCrashes` if the run has crashed
    `attempts` times in a row; a user may then start it again.
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
    """Set a flow run without a deployment to Crashed, after its process died while it held the partition.

    `flow_run` is the id of the run, which would stay Running otherwise. Automations end the runs of deployments. Errors
    are ignored, because this is only bookkeeping.
    """
    _end_run(flow_run, Crashed(message="The process of this run died. A later run took over its partition."))


def end_published_run(flow_run: str) -> None:
    """Set a flow run without a deployment to Completed, if its process died and a later run completed its publish.

    `flow_run` is the id of the run. Errors are ignored, because this is only bookkeeping.
    """
    _end_run(flow_run, Completed(message="The process of this run died while it published. A later run completed it."))


def _end_run(flow_run: str, state: State) -> None:
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        found = client.read_flow_run(UUID(flow_run))
        if found.deployment_id is None and found.state_type in (StateType.RUNNING, StateType.CRASHED):
            _end_task_runs(client, found.id)  # Crashed: an automation ended the run, but not its tasks
            if found.state_type != state.type:
                client.set_flow_run_state(found.id, state, force=True)


def crashes_in_a_row(states: Sequence[State]) -> int:
    """Return the number of crashes since the run last ended in another way. `states` are in order of time.

    The runner, the worker and an automation may each report the same death, on a busy machine after half a minute. So a
    crash counts only in two cases. Either the process ran since the crash before. Or the same reporter reported a crash
    more than `TOLD_TWICE_SECONDS` ago, which means that a new process died before it ran.
    """
    count, ran = 0, False
    told: datetime | None = None
    reporters: set[str] = set()  # of the death that was counted last
    for state in states:
        if state.is_running():
            ran = True
        elif state.is_crashed():
            reporter = re.sub(r"[-\d]+.*", "", state.message or "")  # its words before the exit status
            is_again = told and reporter in reporters and (state.timestamp - told).total_seconds() > TOLD_TWICE_SECONDS
            if ran or told is None or is_again:
                count += 1
                reporters = set()
            reporters.add(reporter)
            ran, told = False, state.timestamp
        elif state.is_final():
            count = 0
    return count


def was_cancelled(states: Sequence[State]) -> bool:
    """Return True if a user cancelled the run and did not schedule it again. `states` are in order of time.

    A user schedules a run again after it ended as Cancelled. After a crash the automation schedules it.
    """
    cancelled, before = False, None
    for state in states:
        if state.is_cancelling() or state.is_cancelled():
            cancelled = True
        elif state.is_scheduled() and before and before.is_cancelled():
            cancelled = False
        before = state
    return cancelled


def _end_task_runs(client: SyncPrefectClient, run_id: UUID) -> None:
    mine = FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
    for task_run in client.read_task_runs(flow_run_filter=mine):
        if task_run.state_type in (StateType.PENDING, StateType.RUNNING):
            state: State = Crashed(message="The process of the flow run died.")
            client.set_task_run_state(task_run.id, state, force=True)
