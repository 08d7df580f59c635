"""Report task runs to the Prefect server that it missed because it was away, or because the worker of a task died."""

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from prefect import Task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterId
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture


class Submitted(NamedTuple):
    """A task that a flow has submitted, with the future of its task run, and the id of the flow run if there is one."""

    task: Task[..., Any]
    flow_run_id: str | None
    future: PrefectFuture[Any]


def report_missed(submitted: Iterable[Submitted]) -> None:
    """Report to the Prefect server the task runs that have ended here: create the missing ones, and end the others.

    Prefect tries for about ten seconds to send the events of a process, and a server may take longer to come back.

    Raises:
        Exception: What Prefect's client raises if the server does not answer.
    """
    ended = {each.future.task_run_id: each for each in submitted if each.future.state.is_final()}
    if not ended:
        return
    with get_client(sync_client=True) as client:
        found = client.read_task_runs(task_run_filter=TaskRunFilter(id=TaskRunFilterId(any_=list(ended))))
        known = {run.id: run.state for run in found}
        for task_run_id, (task, flow_run_id, future) in ended.items():
            if task_run_id not in known:
                flow_run = UUID(flow_run_id) if flow_run_id else None
                client.create_task_run(task, flow_run, str(task_run_id), id=task_run_id, name=task.name)
            elif (state := known[task_run_id]) and state.is_final():
                continue
            here = future.state
            told: State[Any] = State(type=here.type, name=here.name, message=here.message)  # without the result
            client.set_task_run_state(task_run_id, told, force=True)
