"""Cancelling a run: by a signal, or by Cancel in the Prefect UI.

Prefect's runner (of `overnight serve`, of a worker) turns Cancel into SIGTERM by itself. At the terminal nobody does:
`interruptible` turns Cancel, Ctrl-C and SIGTERM into one KeyboardInterrupt there. Either way the task that runs is
stopped where it is waited for (`runner.py`), then the partition is given back, then the run ends as Cancelled.
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
from prefect.context import FlowRunContext
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelled

from overnight.tasks.errors import OvernightError

INTERRUPTIONS = (KeyboardInterrupt, TerminationSignal)
STOPPING: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("stopping", default=None)
SECONDS_BETWEEN = 2.0


class RunCancelled(OvernightError):
    """Somebody cancelled the run. What it staged is kept."""

    status = "cancelled"

    def __init__(self, message: str = "", stage: str | None = None) -> None:
        super().__init__(message or "Staged parts are kept: the next run takes them up.", stage)


def cancellable(run: Callable[..., Any]) -> Callable[..., Any]:
    """A flow's function that ends the run as Cancelled when it is interrupted at the terminal.

    A deployment's run is left to Prefect, which knows whether it was cancelled or its machine only stops.
    """

    @functools.wraps(run)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except INTERRUPTIONS:
            if prefect.runtime.deployment.id and not is_stopping():
                raise
            error = RunCancelled(stage=_stage())
            return Cancelled(message=f"Cancelled in {error.stage}. {error}", data=error)

    return wrapped


@contextlib.contextmanager
def stoppable() -> Iterator[threading.Event]:
    """An event for the runs that threads of the body begin, to each of which it is an interruption.

    A signal reaches the main thread alone. Threads are given the body's context.
    """
    event = threading.Event()
    token = STOPPING.set(event)
    try:
        yield event
    finally:
        STOPPING.reset(token)


def is_stopping() -> bool:
    """Whether the backfill that this run belongs to was interrupted."""
    event = STOPPING.get()
    return event is not None and event.is_set()


def pause(seconds: float) -> None:
    """Sleeps. Raises KeyboardInterrupt where the run is to stop meanwhile."""
    event = STOPPING.get()
    if event is None:
        time.sleep(seconds)
    elif event.wait(seconds):
        raise KeyboardInterrupt


def _stage() -> str:
    """The task that was started last, or "plan" before the first."""
    context = FlowRunContext.get()
    return getattr(context and context.task_runner, "stage", "plan")


@contextlib.contextmanager
def interruptible(flow_run_id: UUID) -> Iterator[None]:
    """Ctrl-C, SIGTERM and Cancel in the UI each raise KeyboardInterrupt in the body, which runs in the main thread.

    Once: a second Ctrl-C ends the process where it is. A run that was interrupted where its flow could not end it is
    Cancelled in the server too, and `RunCancelled` is raised.
    """
    stop = threading.Event()

    def interrupt(*_: Any) -> NoReturn:
        stop.set()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    handlers = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    here = contextvars.copy_context()  # a thread has no context of its own, and with it another Prefect server
    threading.Thread(target=here.run, args=(_watch, flow_run_id, stop), name="cancel", daemon=True).start()
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


def _watch(flow_run_id: UUID, stop: threading.Event) -> None:
    with get_client(sync_client=True) as client:
        while not stop.wait(SECONDS_BETWEEN):
            with contextlib.suppress(Exception):  # a server that is away cancels nothing
                state = client.read_flow_run(flow_run_id).state
                if state and state.is_cancelling() and not stop.is_set():
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                    return
