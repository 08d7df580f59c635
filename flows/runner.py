"""Prefect tasks on Ray: prefect-ray 0.6.0's runner, with what a night's run needs of it (Prefect 3.8, Ray 2.60).

- Prefect's tasks reserve no CPU, so that the stream which they start has them all.
- Ray never re-runs a Prefect task behind Prefect's back.
- `RAY_ADDRESS` or the address given is honoured, `auto` included.
- Prefect's handler of SIGTERM, on which Cancel depends, survives `ray.init`; and a flow that waits for a task waits in
  Python, where the signal can reach it.
- No setting travels in a Ray task's arguments: a worker has its own, from its environment.
- Logs and events are sent before a worker may exit.
- The task run of a worker that died ends as Crashed, instead of Running for ever.
"""

import contextlib
import gc
import logging
import os
import secrets
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

import ray
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import SettingsContext
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import get_current_settings
from prefect.states import Crashed
from prefect_ray.context import RemoteOptionsContext
from prefect_ray.task_runners import PrefectRayFuture, RayTaskRunner

from tasks.errors import OvernightError

R = TypeVar("R")
REMOTE_OPTIONS = {"num_cpus": 0, "max_retries": 0}
FLUSH_SECONDS = 5.0
NOT_SHIPPED = [".git", ".venv", ".demo", "__pycache__", "*.parquet", "*.safetensors"]


class NoSettings(SettingsContext):
    """Settings that serialize to nothing, which a worker takes as: use your own."""

    def serialize(self, include_secrets: bool = True) -> dict[str, Any]:
        return {}


class OvernightFuture(PrefectRayFuture[R]):
    """Waits in Python, so that signals arrive; a lost worker is an error that names its task."""

    def wait(self, timeout: float | None = None) -> None:
        with contextlib.suppress(FutureTimeoutError):
            self._wait_in_python(timeout)
            super().wait(0)

    def result(self, timeout: float | None = None, raise_on_failure: bool = True) -> R:
        if not self._final_state:
            with contextlib.suppress(FutureTimeoutError):
                self._wait_in_python(timeout)
        try:
            return super().result(timeout, raise_on_failure)
        except ray.exceptions.RayError as error:
            if not self._final_state:
                self._report_crash(error)
            raise

    def _report_crash(self, error: Exception) -> None:
        """Ends the task run as Crashed in the server; its own process cannot any more."""
        with get_client(sync_client=True) as client:
            state: State[Any] = Crashed(message=f"The process of this task died: {type(error).__name__}")
            client.set_task_run_state(self.task_run_id, state, force=True)

    def _wait_in_python(self, timeout: float | None) -> None:
        try:
            self.wrapped_future.future().result(timeout)
        except FutureTimeoutError:
            raise
        except Exception:
            return  # super() reads it again and says what it was


class OvernightTaskRunner(RayTaskRunner[R]):
    """The task runner of every flow here."""

    def submit(self, *args: Any, **kwargs: Any) -> OvernightFuture[R]:
        current = SettingsContext.get()
        with (
            RemoteOptionsContext(current_remote_options=REMOTE_OPTIONS),
            NoSettings(profile=current.profile, settings=current.settings) if current else contextlib.nullcontext(),
        ):
            future = super().submit(*args, **kwargs)
        return OvernightFuture(task_run_id=future.task_run_id, wrapped_future=future.wrapped_future)

    def __enter__(self) -> "OvernightTaskRunner[R]":
        owns = False
        with _signal_handler_kept():
            if not ray.is_initialized():
                self._connect()
                owns = True
            super().__enter__()
        self._owns_ray = owns
        return self

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
            if "RAY_AUTH_MODE" not in os.environ:
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray keeps one in the home folder
        logging.getLogger("ray").setLevel(logging.ERROR)
        self._ray_context = ray.init(address, **arguments)

    @staticmethod
    def _run_prefect_task(*args: Any, **kwargs: Any) -> Any:
        try:
            return RayTaskRunner._run_prefect_task(*args, **kwargs)
        finally:
            for worker in (EventsWorker, APILogWorker):
                worker.drain_all(timeout=FLUSH_SECONDS, at_exit=False)
            gc.collect()  # an idle worker would hold a failed stream's actors, and their CPUs, in a cycle


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
