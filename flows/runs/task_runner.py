"""Run Prefect tasks on Ray, with prefect-ray 0.6.0's runner and these changes (Prefect 3.9, Ray 2.60).

- Prefect's tasks reserve no CPU, so that the stream that they start has all of them. Ray never retries them.
- `ray.init` keeps Prefect's handler of SIGTERM, because Cancel depends on it.
- If the Prefect server listens only on this node, tasks run on this node.
- A worker reads its own settings, and sends its logs and events before it exits.
"""

import contextlib
import functools
import gc
import hashlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import ray
from prefect import get_run_logger, runtime
from prefect.context import SettingsContext
from prefect.settings import get_current_settings
from prefect_ray.context import remote_options
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from overnight.flows.runs.local_ray import check_ray_address, fork_server_for_local_ray, start_local_ray
from overnight.flows.runs.local_server import login_profile
from overnight.flows.runs.prefect_internals import NoSettings, send_logs_and_events
from overnight.flows.runs.task_future import (
    FLUSH_SECONDS,
    OvernightFuture,
    RayTaskRunner,
    Submitted,
    report_missed,
    run_prefect_task,
)
from overnight.flows.runs.working_folder import WorkingFolder, working_folder
from overnight.tasks.config.code_folders import code_folder
from overnight.tasks.config.proxies import leave_out_this_machine
from overnight.tasks.errors import JobError, OvernightError

R = TypeVar("R")
REMOTE_OPTIONS = {"num_cpus": 0, "max_retries": 0}
IDLE_WORKER_SECONDS = 120  # longer than the time between two parts
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class OvernightTaskRunner(RayTaskRunner[R]):
    dashboard = ""  # its address; of the class, because the runners of a backfill share the Ray of its first one
    stage = "plan"  # the name of the task that started last
    task_run_id: UUID | None = None  # of that task
    _sent: WorkingFolder | None = None

    def submit(self, *args: Any, **kwargs: Any) -> OvernightFuture[R]:
        """Submit a task to Ray, and return its future. The arguments are those of Prefect's `submit`."""
        if self._sent:
            get_run_logger().info("%s", self._sent)
            self._sent = None
        placement = near_server(get_current_settings().api.url or "")
        current = SettingsContext.get()
        settings = NoSettings(profile=current.profile, settings=current.settings) if current else nullcontext()
        with remote_options(**REMOTE_OPTIONS, **placement), settings:
            submission = super().submit(*args, **kwargs)
        task = args[0] if args else kwargs["task"]
        future = OvernightFuture[R](submission.task_run_id, submission.wrapped_future)
        self.stage, self.task_run_id = task.name, future.task_run_id
        self._submitted.append(Submitted(task, runtime.flow_run.id, future))
        return future

    def __enter__(self) -> "OvernightTaskRunner[R]":
        check_ray_address(self.address)
        owns_ray = False
        self._fork_server = contextlib.ExitStack()
        if not self.address:
            self._fork_server.enter_context(fork_server_for_local_ray())
        with _signal_handler_kept():
            if not ray.is_initialized():
                self._connect()
                owns_ray = True
            super().__enter__()
        self._owns_ray = owns_ray  # then Ray ends when this runner ends
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
        address = self.address or os.environ.get("RAY_ADDRESS")
        logging.getLogger("ray").setLevel(logging.ERROR)
        arguments = {"log_to_driver": False, "logging_level": "ERROR", **self.init_kwargs}
        if address:
            arguments.pop("include_dashboard", None)
            self._join(address, api, arguments)
        else:
            self._start(api, {"include_dashboard": False, **arguments})

    def _join(self, address: str, api: str, arguments: dict[str, Any]) -> None:
        # In a job of `ray job submit --working-dir`, Ray otherwise refuses a runtime environment of the driver.
        os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
        self._sent = working_folder(Path.cwd(), _job_folder())
        self._sent.check()
        with self._sent.linked() as folder:
            environment = {"working_dir": str(folder), "env_vars": _server_variables(api)}
            context = ray.init(address, runtime_env=environment, **arguments)
        self._note_dashboard(context.dashboard_url)

    def _start(self, api: str, arguments: dict[str, Any]) -> None:
        os.environ["PREFECT_API_URL"] = api  # local workers inherit it
        # By default, Ray ends a worker one second after its task; starting the next one takes up to 2.5 s of CPU.
        os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", str(IDLE_WORKER_SECONDS * 1000))
        try:
            context = start_local_ray(**arguments)
        except JobError:
            raise
        except Exception as error:
            sentence = str(error).strip().partition(". ")[0]
            raise OvernightError(
                f"expected Ray to start on this machine, found: {sentence}. Run it again when the machine is less "
                "busy, or start Ray yourself and set RAY_ADDRESS."
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


def near_server(api_url: str) -> dict[str, Any]:
    """Return the options of a Ray task that keep it on this node if other nodes cannot reach the Prefect server.

    `overnight run` on a cluster may have started that server here, on the loopback address.
    """
    if urlsplit(api_url).hostname not in LOOPBACK:
        return {}
    node = ray.get_runtime_context().get_node_id()
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


@contextlib.contextmanager
def server_known_to_workers() -> Iterator[None]:
    """Pass the address and the login of the Prefect server to the Ray workers of the body's tasks.

    This is needed only if Ray runs already, and its workers have none or others: each would start a server of its own.
    """
    api = get_current_settings().api
    login = api.auth_string.get_secret_value() if api.auth_string else ""
    if not api.url or not ray.is_initialized() or ray.get(_digest_of_worker.remote()) == _digest(api.url, login):
        yield
        return
    with remote_options(runtime_env={"env_vars": _server_variables(api.url)}):
        yield


def _server_variables(api_url: str) -> dict[str, str]:
    """Return the variables of a worker. Ray shows them, so they name the file of the login, and never the login."""
    return {"PREFECT_API_URL": api_url, **login_profile(api_url)}


def _digest(*values: str) -> str:
    return hashlib.sha256("\n".join(values).encode()).hexdigest()


@ray.remote(num_cpus=0)
def _digest_of_worker() -> str:
    return _digest(os.environ.get("PREFECT_API_URL", ""), os.environ.get("PREFECT_API_AUTH_STRING", ""))


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
