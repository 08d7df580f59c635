"""Cancel a run by a signal, or by Cancel in the Prefect UI. The run releases the partition, and ends as Cancelled.

Prefect's runner (of `overnight serve`, of a worker) turns Cancel into SIGTERM. Without it, `interruptible` turns
Cancel, Ctrl-C and SIGTERM into one KeyboardInterrupt. The event of `stoppable` interrupts a thread. If the Prefect
server is away for half a minute, Prefect's runner stops looking for Cancel for good, so a deployment's run looks too.
"""

import contextlib
import contextvars
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from uuid import UUID

import prefect.runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelled, Completed

from overnight.flows.runs import flow_run
from overnight.tasks.errors import OvernightError

INTERRUPTIONS = (KeyboardInterrupt, TerminationSignal)
STOPPING: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("stopping", default=None)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
SECONDS_BETWEEN = 2.0
SECONDS_BETWEEN_DEPLOYED = 30.0  # Prefect's runner usually stops a cancelled run within a second


class RunCancelled(OvernightError):
    """Raised when a user cancelled the run. Its staged parts are kept."""

    status = "cancelled"

    def __init__(self, message: str = "", stage: str | None = None) -> None:
        super().__init__(message or "Staged parts are kept, and the next run resumes from them.", stage)


def cancellable(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a flow's function, so that an interruption at the terminal ends the run as Cancelled.

    Prefect itself ends a deployment's run, because only Prefect can see if the run was cancelled or its machine stops.
    """

    @functools.wraps(run)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with _stopped_if_cancelled() as cancel:
            try:
                return run(*args, **kwargs)
            except INTERRUPTIONS:
                if prefect.runtime.deployment.id and not cancel.is_set():
                    raise
                error = RunCancelled(stage=flow_run.stage())
                return Cancelled(message=f"Cancelled in {error.stage}. {error}", data=error)

    return wrapped


def completed(message: str, result: Any) -> State[Any]:
    """Return the state Completed of the current flow run, which has published its result.

    If a user cancelled the run too late, force this state on the server, which otherwise accepts only Cancelled.
    """
    run_id = UUID(prefect.runtime.flow_run.id)
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:  # Prefect reports a late end itself
        if _is_cancelled(client.read_flow_run(run_id).state):
            message = f"{message}; it was cancelled too late"
            client.set_flow_run_state(run_id, Completed(message=message), force=True)
    return Completed(message=message, data=result)


@contextlib.contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Yield an event. Once a caller sets it, it interrupts every run that a thread of the body begins.

    Each thread runs in a copy of the body's context. In the body of another `stoppable`, the event is the outer one.
    """
    event = STOPPING.get() or threading.Event()
    token = STOPPING.set(event)
    try:
        yield event
    finally:
        STOPPING.reset(token)


def is_stopping() -> bool:
    """Return True if the event of `stoppable` is set, so that this run must stop."""
    event = STOPPING.get()
    return event is not None and event.is_set()


def pause(seconds: float) -> None:
    """Sleep for this time. Raise KeyboardInterrupt as soon as the run must stop."""
    event = STOPPING.get()
    if event is None:
        time.sleep(seconds)
    elif event.wait(seconds):
        raise KeyboardInterrupt


@contextlib.contextmanager
def _stopped_if_cancelled() -> Iterator[threading.Event]:
    """Stop the current flow run if a user cancels it and its deployment's runner does not. Yield an event for Cancel.

    Inside the body of `stoppable`, as for the runs of a backfill, this is the event of that body.
    """
    outer = STOPPING.get()
    if outer or not prefect.runtime.deployment.id:
        yield outer or threading.Event()
        return
    event = threading.Event()  # not that of `stoppable`, which a backfill also sets if its worker stops
    with stoppable() as stopping:

        def cancel() -> None:
            event.set()
            stopping.set()

        with _watched(UUID(prefect.runtime.flow_run.id), SECONDS_BETWEEN_DEPLOYED, cancel):
            yield event


@contextlib.contextmanager
def interruptible(flow_run_id: UUID, on_interrupt: Callable[[], object] = bool) -> Iterator[None]:
    """Raise KeyboardInterrupt in the body on Ctrl-C, SIGTERM or Cancel in the UI, after a call of `on_interrupt`.

    In a thread, Cancel sets the event of `stoppable`. If the flow does not end as Cancelled, raise `RunCancelled`.
    """
    is_main = threading.current_thread() is threading.main_thread()
    stopping = STOPPING.get()

    def cancel() -> None:
        if is_main:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        elif stopping:
            stopping.set()

    with _watched(flow_run_id, SECONDS_BETWEEN, cancel) as stop:

        def interrupt(*_: Any) -> NoReturn:
            stop.set()
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends the process
            try:
                on_interrupt()
            finally:  # its message may fail, because Ctrl-C also ends the `tee` that reads it
                raise KeyboardInterrupt

        handlers = {number: signal.signal(number, interrupt) for number in (SIGNALS if is_main else ())}
        try:
            yield
        except INTERRUPTIONS:
            error = RunCancelled()
            with get_client(sync_client=True) as client:
                client.set_flow_run_state(flow_run_id, Cancelled(message=str(error)), force=True)
            raise error from None
        finally:
            stop.set()
            for number, handler in handlers.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _watched(flow_run_id: UUID, seconds_between: float, cancel: Callable[[], object]) -> Iterator[threading.Event]:
    """Call `cancel` in a thread if a user cancels the flow run on the server. Yield the event that ends the thread."""
    stop = threading.Event()
    context = contextvars.copy_context()  # without it, the thread would use another Prefect server
    arguments = (_watch, flow_run_id, seconds_between, stop, cancel)
    threading.Thread(target=context.run, args=arguments, name="cancel", daemon=True).start()
    try:
        yield stop
    finally:
        stop.set()


def _watch(flow_run_id: UUID, seconds_between: float, stop: threading.Event, cancel: Callable[[], object]) -> None:
    with get_client(sync_client=True) as client:
        while not stop.wait(seconds_between):
            with contextlib.suppress(Exception):  # a server that is away cannot cancel
                state = client.read_flow_run(flow_run_id).state
                if _is_cancelled(state) and not stop.is_set():
                    cancel()
                    return


def _is_cancelled(state: State[Any] | None) -> bool:
    """Return True if a user cancelled the run. Prefect's server changes Cancelling to Cancelled after five minutes."""
    return state is not None and (state.is_cancelling() or state.is_cancelled())
