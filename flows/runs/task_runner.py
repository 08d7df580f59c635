"""Prefect tasks on Ray: prefect-ray 0.6.0's runner, with what a night's run needs of it (Prefect 3.9, Ray 2.60).

- Prefect's tasks reserve no CPU, so that the stream which they start has them all.
- Ray never re-runs a Prefect task behind Prefect's back.
- `RAY_ADDRESS` or the address given is honoured, `auto` included.
- Prefect's handler of SIGTERM, on which Cancel depends, survives `ray.init`; and a flow that waits for a task waits in
  Python, where the signal can reach it.
- No setting travels in a Ray task's arguments: a worker has its own, from its environment.
- Logs and events are sent before a worker may exit; how a task ended is told again by the flow, if the server has not
  heard of it (it was away, or the worker died with the news).
- The task run of a worker that died ends as Crashed, instead of Running for ever; that of a flow that is interrupted
  while it waits is stopped, and ends as Cancelled.
"""

import contextlib
import functools
import gc
import logging
import math
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

import ray
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterId
from prefect.client.schemas.objects import State
from prefect.context import SettingsContext
from prefect.exceptions import ObjectNotFound
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Crashed
from prefect_ray.context import RemoteOptionsContext

from overnight.flows.runs.cancellation import INTERRUPTIONS, is_stopping
from overnight.flows.runs.prefect_internals import NoSettings, send_logs_and_events
from overnight.flows.runs.prefect_ray_internals import EndableFuture, OpenRayTaskRunner, run_prefect_task
from overnight.tasks.errors import OvernightError
from overnight.tasks.workers import fork_server

R = TypeVar("R")
REMOTE_OPTIONS = {"num_cpus": 0, "max_retries": 0}
FLUSH_SECONDS = 5.0
LOOK_SECONDS = 1.0
IDLE_WORKER_SECONDS = 120  # longer than until the next part is written
STOP_SECONDS = 10.0  # of the 30 that Prefect's runner gives a flow that it cancels
NOT_SHIPPED = [".git", ".venv", ".demo", "__pycache__", "*.parquet", "*.safetensors"]


class OvernightFuture(EndableFuture[R]):
    """Waits in Python, so that signals arrive; then it stops its task. A lost worker is an error."""

    def wait(self, timeout: float | None = None) -> None:
        with contextlib.suppress(FutureTimeoutError):
            self._wait_in_python(timeout)
            super().wait(0)

    def result(self, timeout: float | None = None, raise_on_failure: bool = True) -> R:
        if not self.has_ended:
            with contextlib.suppress(FutureTimeoutError):
                self._wait_in_python(timeout)
        try:
            return super().result(timeout, raise_on_failure)
        except ray.exceptions.RayError as error:
            if not self.has_ended:
                self._report(Crashed(message=f"The process of this task died: {type(error).__name__}"))
            raise

    def _stop(self) -> None:
        """Ends the task's process, and with it the stream that it drives; returns when it is gone."""
        ray.cancel(self.wrapped_future, force=True)
        with contextlib.suppress(Exception):
            self.wrapped_future.future().result(STOP_SECONDS)
        self._report(Cancelled(message="The flow run was interrupted."))

    def _report(self, state: State[Any]) -> None:
        """Ends the task run in the server, where its own process cannot any more; that costs the flow nothing."""
        self.end_as(state)
        deadline = time.monotonic() + FLUSH_SECONDS
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:
            while time.monotonic() < deadline:
                try:
                    client.set_task_run_state(self.task_run_id, state, force=True)
                    return
                except ObjectNotFound:
                    time.sleep(0.5)  # its beginning is still on its way to the server

    def _wait_in_python(self, timeout: float | None) -> None:
        try:
            self._watch(timeout)
        except FutureTimeoutError:
            raise
        except INTERRUPTIONS:
            self._stop()
            raise
        except Exception:
            return  # super() reads it again and says what it was

    def _watch(self, timeout: float | None) -> None:
        """Waits for the future. Raises its error, `TimeoutError`, and KeyboardInterrupt where the run is to stop."""
        future, deadline = self.wrapped_future.future(), time.monotonic() + (math.inf if timeout is None else timeout)
        while True:
            try:
                future.result(min(LOOK_SECONDS, max(deadline - time.monotonic(), 0)))
                return
            except FutureTimeoutError:
                if is_stopping():
                    raise KeyboardInterrupt from None
                if future.done() or time.monotonic() >= deadline:
                    raise


class OvernightTaskRunner(OpenRayTaskRunner[R]):
    """The task runner of every flow here. `stage` is the task that was started last, or "plan"."""

    stage = "plan"

    def submit(self, *args: Any, **kwargs: Any) -> OvernightFuture[R]:
        current = SettingsContext.get()
        with (
            RemoteOptionsContext(current_remote_options=REMOTE_OPTIONS),
            NoSettings(profile=current.profile, settings=current.settings) if current else contextlib.nullcontext(),
        ):
            future = super().submit(*args, **kwargs)
        self.stage = (args[0] if args else kwargs["task"]).name
        self._submitted.append(OvernightFuture(task_run_id=future.task_run_id, wrapped_future=future.wrapped_future))
        return self._submitted[-1]

    def __enter__(self) -> "OvernightTaskRunner[R]":
        owns = False
        self._fork_server = contextlib.ExitStack()
        if not self.address:
            self._fork_server.enter_context(fork_server.for_local_ray())
        with _signal_handler_kept():
            if not ray.is_initialized():
                self._connect()
                owns = True
            super().__enter__()
        self.shut_down_ray_at_exit(owns)
        self._submitted: list[OvernightFuture[Any]] = []
        return self

    def __exit__(self, *exc_info: Any) -> None:
        super().__exit__(*exc_info)
        self._fork_server.close()
        with contextlib.suppress(Exception):  # the bookkeeping costs no run
            self._tell_again()

    def _tell_again(self) -> None:
        """Ends those task runs in the server of whose end it has not heard."""
        ended = {future.task_run_id: future.state for future in self._submitted if future.state.is_final()}
        if not ended:
            return
        with get_client(sync_client=True) as client:
            known = client.read_task_runs(task_run_filter=TaskRunFilter(id=TaskRunFilterId(any_=list(ended))))
            for run in known:
                if not (run.state and run.state.is_final()):
                    state = ended[run.id]
                    told: State[Any] = State(type=state.type, name=state.name, message=state.message)
                    client.set_task_run_state(run.id, told, force=True)

    def _connect(self) -> None:
        api = get_current_settings().api.url
        if not api:
            raise OvernightError(
                "PREFECT_API_URL is not set: without it every Ray worker would start a Prefect server of its own. "
                "Set it to a running server, or use `overnight run`, which starts one."
            )
        address = self.address or os.environ.get("RAY_ADDRESS") or None
        arguments: dict[str, Any] = {
            "log_to_driver": False,
            "include_dashboard": False,
            "logging_level": "ERROR",
            **self.init_kwargs,
        }
        if address:
            arguments.pop("include_dashboard")
            arguments["runtime_env"] = {
                "working_dir": os.getcwd(),
                "excludes": NOT_SHIPPED,
                "env_vars": {"PREFECT_API_URL": api},
            }
        else:
            os.environ["PREFECT_API_URL"] = api  # local workers inherit it
            # Ray ends a worker a second after its task; to start another for the next takes up to 2.5 s of CPU.
            os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", str(IDLE_WORKER_SECONDS * 1000))
            if "RAY_AUTH_MODE" not in os.environ:
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray keeps one in the home folder
        logging.getLogger("ray").setLevel(logging.ERROR)
        # "local", for None would join whatever cluster was started on this machine last.
        ray.init(address or "local", **arguments)

    @staticmethod
    def _run_prefect_task(*args: Any, **kwargs: Any) -> Any:
        is_well = False
        _leave_imports_alone()
        try:
            state = run_prefect_task(*args, **kwargs)
            is_well = state.is_completed()
            return state
        finally:
            send_logs_and_events(FLUSH_SECONDS)
            if not is_well:
                gc.collect()  # an idle worker would hold a failed stream's actors, and their CPUs, in a cycle


@functools.cache  # once a process: what a task leaves behind is to be found
def _leave_imports_alone() -> None:
    """Garbage is not looked for in what was imported, which takes a third of the time of a listing."""
    gc.freeze()


@contextlib.contextmanager
def _signal_handler_kept() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
