"""A deployment's flow run that starts again after its process died, or its machine.

Prefect's runner reports a process that died; where the runner is gone too, heartbeats stop. Either way the server sets
the run to Crashed, and an automation (`deployments/automations`) schedules the same run again.
"""

import contextlib
from collections.abc import Sequence
from uuid import UUID

import prefect.runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import State, StateType
from prefect.states import Cancelled, Completed, Crashed

from overnight.tasks.errors import OvernightError

TOLD_TWICE_SECONDS = 10


class TooManyCrashes(OvernightError):
    """The flow's process died each time that the run was started."""


def after_crashes(attempts: int) -> State | None:
    """Where this start of the run follows a crash: ends the task runs that died with it.

    Returns the state in which the run is to end at once, where somebody had cancelled it: a process that is stopped
    before it can end well crashes, and the automation starts it again all the same. Raises `TooManyCrashes` if the run
    has crashed `attempts` times in a row; a person may then start it again.
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
        return Cancelled(message="It was cancelled, and its process died of that.")
    if crashes >= attempts:
        raise TooManyCrashes(
            f"the process of this run died {crashes} times, and retries.attempts of the job is {attempts}. See the "
            "logs of the machine that ran it: most often its memory is too small. What was staged is kept: retry the "
            "run, or run the partition anew, and it is taken up."
        )
    return None


def end_dead_run(flow_run: str) -> None:
    """Ends a run at the terminal as Crashed, whose process died while it held the partition; else it ran for ever.

    A deployment's run is left to the automations. That costs nobody a run: what fails here is not told.
    """
    _end_run(flow_run, Crashed(message="Its process died; a later run took its partition over."))


def end_published_run(flow_run: str) -> None:
    """Ends such a run as Completed: its process died when what it published was there, or had only to be tidied up."""
    _end_run(flow_run, Completed(message="Its process died while it published; a later run saw to it that it is done."))


def _end_run(flow_run: str, state: State) -> None:
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        found = client.read_flow_run(UUID(flow_run))
        if found.deployment_id is None and found.state_type in (StateType.RUNNING, StateType.CRASHED):
            _end_task_runs(client, found.id)  # Crashed: an automation noticed its silence, and knows of no tasks
            if found.state_type != state.type:
                client.set_flow_run_state(found.id, state, force=True)


def crashes_in_a_row(states: Sequence[State]) -> int:
    """Crashes since the run last ended otherwise; `states` in order of time.

    One death may be told twice within seconds, by the runner of its process and by the worker. So a crash counts that
    follows `TOLD_TWICE_SECONDS` after the one before, or a process that ran in between.
    """
    count, ran, told = 0, False, None
    for state in states:
        if state.is_running():
            ran = True
        elif state.is_crashed():
            if ran or told is None or (state.timestamp - told).total_seconds() > TOLD_TWICE_SECONDS:
                count += 1
            ran, told = False, state.timestamp
        elif state.is_final():
            count = 0
    return count


def was_cancelled(states: Sequence[State]) -> bool:
    """Whether somebody cancelled the run and nobody asked for it again since; `states` in order of time.

    Asked for again is what is scheduled after it ended as Cancelled. After a crash the automation schedules it.
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
            state: State = Crashed(message="The flow's process died.")
            client.set_task_run_state(task_run.id, state, force=True)
