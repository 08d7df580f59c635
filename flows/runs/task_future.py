"""The future of a Prefect task on Ray, and all undocumented parts of prefect-ray 0.6 that Overnight uses.

The future ends the task run if the task's process no longer can. It waits in Python, so that signals reach the flow. If
a signal interrupts the wait, the task is stopped. `OvernightTaskRunner` also overrides `_run_prefect_task`, which the
runner sends to a Ray worker, and sets `_owns_ray`. `tests/flows/runs/test_task_future.py` fails if one of them moves.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import prefect_ray
import ray
from prefect import Task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterId
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from overnight.flows.runs.cancellation import INTERRUPTIONS, is_stopping
from overnight.flows.runs.local_ray import RayEnded, local_ray
from overnight.tasks.errors import OvernightError

WRITTEN_FOR = "0.6."

if not prefect_ray.__version__.startswith(WRITTEN_FOR):
    raise OvernightError(
        f"expected prefect-ray {WRITTEN_FOR}*, whose task runner Overnight extends; found {prefect_ray.__version__}. "
        f"Install it: pip install 'prefect-ray=={WRITTEN_FOR}*'."
    )

from prefect_ray.task_runners import PrefectRayFuture, RayTaskRunner  # noqa: E402 - only of that version

__all__ = ["FLUSH_SECONDS", "OvernightFuture", "RayTaskRunner", "Submitted", "report_missed", "run_prefect_task"]

R = TypeVar("R")
FLUSH_SECONDS = 5.0
LOOK_SECONDS = 1.0
STAGE_SECONDS, STOP_SECONDS = 10.0, 10.0  # Prefect's runner gives a cancelled flow 30 s


class OvernightFuture(PrefectRayFuture[R]):
    """A future that accepts a final state, because its task's process may end before it reports one.

    Before an interruption ends the task, `stop_stream` is called. If it returns True, the task gets `STAGE_SECONDS` to
    stage its finished rows.
    """

    stop_stream: Callable[[], bool] = bool

    @property
    def has_ended(self) -> bool:
        return self._final_state is not None

    def end_as(self, state: State[Any]) -> None:
        self._final_state = state

    def wait(self, timeout: float | None = None) -> None:
        with contextlib.suppress(TimeoutError):
            self._wait_in_python(timeout)
            super().wait(0)

    def result(self, timeout: float | None = None, raise_on_failure: bool = True) -> R:
        """Wait at most `timeout` seconds, and return the task's result, or without `raise_on_failure` its error."""
        if not self.has_ended:
            with contextlib.suppress(TimeoutError):
                self._wait_in_python(timeout)
        try:
            return super().result(timeout, raise_on_failure)
        except ray.exceptions.RayError as error:
            if not self.has_ended:
                self._report(Crashed(message=f"The process of this task died: {type(error).__name__}"))
            raise

    def _stop(self) -> None:
        """End the task's process and the stream that it drives. Return when the process has ended."""
        try:
            with contextlib.suppress(Exception):
                if self.stop_stream():
                    self.wrapped_future.future().result(STAGE_SECONDS)
        finally:  # a second signal ends the wait
            ray.cancel(self.wrapped_future, force=True)
            with contextlib.suppress(Exception):
                self.wrapped_future.future().result(STOP_SECONDS)
        self._report(Cancelled(message="The flow run was interrupted."))

    def _report(self, state: State[Any]) -> None:
        self.end_as(state)
        deadline = time.monotonic() + FLUSH_SECONDS
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:
            while time.monotonic() < deadline:
                try:
                    client.set_task_run_state(self.task_run_id, state, force=True)
                    return
                except ObjectNotFound:
                    time.sleep(0.5)  # the server has not received the task run's start yet

    def _wait_in_python(self, timeout: float | None) -> None:
        try:
            self._watch(timeout)
        except TimeoutError:
            raise
        except INTERRUPTIONS:
            self._stop()
            raise
        except RayEnded as error:
            self._report(Crashed(message=error.message))
            raise
        except Exception:
            return  # super() raises the error again

    def _watch(self, timeout: float | None) -> None:
        """Wait for the future. Raise its error, `TimeoutError`, or KeyboardInterrupt if the run must stop."""
        gcs = local_ray()
        future = self.wrapped_future.future()
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        while True:
            try:
                future.result(min(LOOK_SECONDS, max(deadline - time.monotonic(), 0)))
                return
            except TimeoutError:
                if is_stopping():
                    raise KeyboardInterrupt from None
                gcs.check()
                if future.done() or time.monotonic() >= deadline:
                    raise


class Submitted(NamedTuple):
    """A task that a flow has submitted, with the future of its task run, and the id of the flow run if there is one."""

    task: Task[..., Any]
    flow_run_id: str | None
    future: OvernightFuture[Any]


def report_missed(submitted: Iterable[Submitted]) -> None:
    """Report to the Prefect server the task runs that have ended here: create the missing ones, and end the others.

    Prefect tries for about ten seconds to send the events of a process, and a server may take longer to come back.
    """
    tasks = {task.future.task_run_id: task for task in submitted if task.future.state.is_final()}
    if not tasks:
        return
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(task_run_filter=TaskRunFilter(id=TaskRunFilterId(any_=list(tasks))))
        states = {run.id: run.state for run in runs}
        for task_run_id, (task, flow_run_id, future) in tasks.items():
            state = states.get(task_run_id)
            if task_run_id not in states:
                flow_run = UUID(flow_run_id) if flow_run_id else None
                client.create_task_run(task, flow_run, str(task_run_id), id=task_run_id, name=task.name)
            elif state and state.is_final():
                continue
            end = future.state
            report: State[Any] = State(type=end.type, name=end.name, message=end.message)  # without the result
            client.set_task_run_state(task_run_id, report, force=True)


def run_prefect_task(*arguments: Any, **named: Any) -> State[Any]:
    """Run a Prefect task in the Ray worker that calls this, and return the task's final state."""
    state: State[Any] = RayTaskRunner._run_prefect_task(*arguments, **named)
    return state
