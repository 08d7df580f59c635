"""Run Prefect tasks on Ray, with prefect-ray 0.6.0's runner and these changes (Prefect 3.9, Ray 2.60).

- Prefect's tasks reserve no CPU, so that the stream that they start has all of them.
- Ray never retries a Prefect task by itself, so that Prefect counts every try.
- The runner uses the given address or `RAY_ADDRESS`, also if it is `auto`.
- `ray.init` keeps Prefect's handler of SIGTERM, because Cancel depends on it. A flow waits for a task in Python, so
  that the signal can reach it.
- If the Prefect server listens only on this node, tasks run on this node.
- The arguments of a Ray task hold no settings: a worker reads its own from its environment.
- A worker sends its logs and events before it exits. If the server missed a task or its end, because the server was
  away or the worker died, the flow reports it again.
- If a worker dies, its task run ends as Crashed instead of staying Running. If a flow is interrupted while it waits,
  its task is stopped and ends as Cancelled.
"""

import contextlib
import functools
import gc
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import ray
from prefect import get_run_logger, runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import SettingsContext
from prefect.exceptions import ObjectNotFound
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Crashed
from prefect_ray.context import RemoteOptionsContext

from overnight.flows.runs.cancellation import INTERRUPTIONS, is_stopping
from overnight.flows.runs.early_imports import fork_server_for_local_ray
from overnight.flows.runs.local_ray import RayEnded, local_ray, start_local_ray
from overnight.flows.runs.local_server import login_profile
from overnight.flows.runs.missed_task_runs import Submitted, report_missed
from overnight.flows.runs.near_server import near_server
from overnight.flows.runs.prefect_internals import NoSettings, send_logs_and_events
from overnight.flows.runs.prefect_ray_internals import EndableFuture, OpenRayTaskRunner, run_prefect_task
from overnight.flows.runs.ray_address import check_ray_address
from overnight.flows.runs.working_folder import WorkingFolder, working_folder
from overnight.tasks.config.code_folders import code_folder
from overnight.tasks.config.proxies import leave_out_this_machine
from overnight.tasks.errors import JobError, OvernightError

R = TypeVar("R")
REMOTE_OPTIONS = {"num_cpus": 0, "max_retries": 0}
FLUSH_SECONDS = 5.0
LOOK_SECONDS = 1.0
IDLE_WORKER_SECONDS = 120  # longer than the time between two parts
STOP_SECONDS = 10.0  # Prefect's runner gives a cancelled flow 30 s


class OvernightFuture(EndableFuture[R]):
    """The future of a Prefect task on Ray. It waits in Python, so that signals reach the flow.

    If a signal interrupts the wait, the task is stopped. If the task's worker dies, its task run ends as Crashed.
    """

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the task has ended, at most `timeout` seconds."""
        with contextlib.suppress(FutureTimeoutError):
            self._wait_in_python(timeout)
            super().wait(0)

    def result(self, timeout: float | None = None, raise_on_failure: bool = True) -> R:
        """Wait at most `timeout` seconds, and return the task's result, or without `raise_on_failure` its error.

        If the task's process died, set its task run to Crashed, and raise Ray's error.
        """
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
        """End the task's process and the stream that it drives. Return when the process has ended."""
        ray.cancel(self.wrapped_future, force=True)
        with contextlib.suppress(Exception):
            self.wrapped_future.future().result(STOP_SECONDS)
        self._report(Cancelled(message="The flow run was interrupted."))

    def _report(self, state: State[Any]) -> None:
        """End the task run on the server, because its process no longer can. Errors are ignored."""
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
        except FutureTimeoutError:
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
        """Wait for the future. Raise its error, `TimeoutError`, or KeyboardInterrupt if the run must stop.

        Raise `RayEnded` if there is no Ray any more that could end it.
        """
        gcs = local_ray()
        future, deadline = self.wrapped_future.future(), time.monotonic() + (math.inf if timeout is None else timeout)
        while True:
            try:
                future.result(min(LOOK_SECONDS, max(deadline - time.monotonic(), 0)))
                return
            except FutureTimeoutError:
                if is_stopping():
                    raise KeyboardInterrupt from None
                gcs.check()
                if future.done() or time.monotonic() >= deadline:
                    raise


class OvernightTaskRunner(OpenRayTaskRunner[R]):
    """The task runner of every flow of Overnight.

    `stage` is the name of the task that started last, or "plan" before the first. `task_run_id` is the id of the run of
    that task, or None. `dashboard` is the address of the dashboard of the Ray that a runner of this process started or
    joined, or an empty string.
    """

    dashboard = ""  # of the class, because the runners of a backfill share the Ray of its first one
    stage = "plan"
    task_run_id: UUID | None = None
    _sent: WorkingFolder | None = None

    def submit(self, *args: Any, **kwargs: Any) -> OvernightFuture[R]:
        """Submit a task to Ray, and return its future. The arguments are those of Prefect's `submit`.

        They are sent without the Prefect settings of this process, because a worker has its own. The first call in a
        cluster logs which files were sent there.
        """
        if self._sent:
            get_run_logger().info("%s", self._sent)
            self._sent = None
        current, options = SettingsContext.get(), RemoteOptionsContext.get().current_remote_options
        placement = near_server(get_current_settings().api.url or "")
        with (
            RemoteOptionsContext(current_remote_options={**options, **REMOTE_OPTIONS, **placement}),
            NoSettings(profile=current.profile, settings=current.settings) if current else contextlib.nullcontext(),
        ):
            future = super().submit(*args, **kwargs)
        task, ours = args[0] if args else kwargs["task"], OvernightFuture[R](future.task_run_id, future.wrapped_future)
        self.stage, self.task_run_id = task.name, ours.task_run_id
        self._submitted.append(Submitted(task, runtime.flow_run.id, ours))
        return ours

    def __enter__(self) -> "OvernightTaskRunner[R]":
        check_ray_address(self.address)
        owns = False
        self._fork_server = contextlib.ExitStack()
        if not self.address:
            self._fork_server.enter_context(fork_server_for_local_ray())
        with _signal_handler_kept():
            if not ray.is_initialized():
                self._connect()
                owns = True
            super().__enter__()
        self.shut_down_ray_at_exit(owns)
        self._submitted: list[Submitted] = []
        return self

    def __exit__(self, *exc_info: Any) -> None:
        super().__exit__(*exc_info)
        if not ray.is_initialized():
            OvernightTaskRunner.dashboard = ""
        self._fork_server.close()
        with contextlib.suppress(Exception):  # failed bookkeeping must not fail the run
            report_missed(self._submitted)

    def _connect(self) -> None:
        api = get_current_settings().api.url
        if not api:
            raise OvernightError(
                "expected PREFECT_API_URL, found no such variable: every Ray worker would start a Prefect server of "
                "its own. Set it to a running server, or use `overnight run`, which starts one."
            )
        address = self.address or os.environ.get("RAY_ADDRESS") or None
        arguments: dict[str, Any] = {
            "log_to_driver": False,
            "include_dashboard": False,
            "logging_level": "ERROR",
            **self.init_kwargs,
        }
        logging.getLogger("ray").setLevel(logging.ERROR)
        if address:
            arguments.pop("include_dashboard")
            # In a job of `ray job submit --working-dir`, Ray otherwise refuses a runtime environment of the driver.
            os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
            self._sent = working_folder(Path.cwd(), _job_folder())
            self._sent.check()
            with self._sent.linked() as folder:
                variables = {"PREFECT_API_URL": api, **login_profile(api)}  # Ray shows them: no login, only its file
                environment = {"working_dir": str(folder), "env_vars": variables}
                context = ray.init(address, runtime_env=environment, **arguments)
            self._note_dashboard(context.dashboard_url)
            return
        os.environ["PREFECT_API_URL"] = api  # local workers inherit it
        # By default, Ray ends a worker one second after its task; starting the next one takes up to 2.5 s of CPU.
        os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", str(IDLE_WORKER_SECONDS * 1000))
        try:
            context = start_local_ray(**arguments)
        except JobError:
            raise
        except Exception as error:
            first = str(error).strip().partition(". ")[0]
            raise OvernightError(
                f"expected Ray to start on this machine, found: {first}. Run it again when the machine is less busy, "
                "or start Ray yourself and set RAY_ADDRESS."
            ) from error
        if arguments["include_dashboard"]:  # without one, Ray returns an address where nothing listens
            self._note_dashboard(context.dashboard_url)

    def _note_dashboard(self, url: str | None) -> None:
        OvernightTaskRunner.dashboard = f"http://{url}" if url else ""

    @staticmethod
    def _run_prefect_task(*args: Any, **kwargs: Any) -> Any:
        is_well = False
        _leave_imports_alone()
        leave_out_this_machine()  # the node's environment may have a proxy
        try:
            state = run_prefect_task(*args, **kwargs)
            is_well = state.is_completed()
            return state
        finally:
            send_logs_and_events(FLUSH_SECONDS)
            if not is_well:
                gc.collect()  # a reference cycle in an idle worker would keep a failed stream's actors and CPUs


def _job_folder() -> Path | None:
    """Return the folder of the job's modules: of the command, or of the deployment's run. None if it is unknown."""
    if folder := code_folder():
        return Path(folder.path)
    with contextlib.suppress(Exception):  # outside of a run of a deployment
        return Path(runtime.flow_run.parameters["job"]).parent
    return None


@functools.cache  # once per process, because the collector must find the garbage of later tasks
def _leave_imports_alone() -> None:
    """Exclude imported objects from garbage collection, which takes a third of the time of a listing."""
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
