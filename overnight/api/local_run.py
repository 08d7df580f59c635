"""Run a flow in this process, for the command line and for Python: with a local Prefect server, Ray, and progress.

Inside a flow or a task of the user, the run is a subflow. It uses the same server, and Prefect's log shows it.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import ray
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext, TaskRunContext
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Pending

from overnight.api.progress_followed import following
from overnight.api.progress_screen import Screen, Verbosity
from overnight.flows.backfill import backfill, backfill_id, scope_of
from overnight.flows.batch_inference import batch_inference
from overnight.flows.deploy.automations import HEARTBEAT_SECONDS
from overnight.flows.job.model import Job
from overnight.flows.ledger.forecast import NEWEST, experience, run_seconds
from overnight.flows.ledger.reader import earlier_receipts
from overnight.flows.ledger.remembered import remembered_rows
from overnight.flows.runs.attempt import bury_publisher, is_publisher_dead
from overnight.flows.runs.cancellation import RunCancelled, interruptible
from overnight.flows.runs.continuation import published_or_scope
from overnight.flows.runs.flow_run import failed_before_it_began, unchanged_message
from overnight.flows.runs.local_ray import check_ray_address, fork_server_for_local_ray
from overnight.flows.runs.local_server import client_settings, prefect_server, settings_shared, ui_line
from overnight.flows.runs.prefect_internals import run_flow
from overnight.flows.runs.run import describe_run
from overnight.flows.runs.task_runner import OvernightTaskRunner, server_known_to_workers
from overnight.flows.similarity_search import similarity_search
from overnight.tasks.config.code_folders import modules_in
from overnight.tasks.config.masking import masked
from overnight.tasks.engine.progress import Interval
from overnight.tasks.errors import OvernightError, explain
from overnight.tasks.infer.kinds import imports
from overnight.tasks.state.run import Run
from overnight.tasks.workers import fork_server

SERVER_PHASE = "looking for the Prefect server, or starting one"
INTERRUPTED = (
    "Interrupted: the finished rows are staged first, in some seconds. A second Ctrl-C ends the run immediately."
)
WOULD_RUN = "It runs again with --force, or once its inputs, settings, models or code change."


def run_locally(
    job_path: Path, job: Job, screen: Screen, ray_dashboard: bool = False, **options: Any
) -> dict[str, Any]:
    """Run one partition now, and return its receipt. Raise `OvernightError` if the run fails or is cancelled.

    `options` are all parameters of the flow `batch_inference` except the job. The screen shows the address of the UI
    and the progress of the run. If `ray_dashboard`, start Ray's dashboard with the Ray of this run, and print its
    address.
    """
    partition, retry_quarantined = options["partition"], options["retry_quarantined"]
    with _explained():
        for code in job.code():
            code.check_source()
        description = describe_run(job, partition, options["reason"], options["limit_rows"])
        former_receipt, scope = published_or_scope(job, description, options["force"], retry_quarantined)
        if former_receipt:
            screen.say(f"{job.name}: {unchanged_message(former_receipt, retry_quarantined)}")
            if not retry_quarantined:
                screen.say(WOULD_RUN)
            if is_publisher_dead(description, former_receipt):
                with prefect_server(not screen.verbosity.quiet):
                    bury_publisher(description)
            return former_receipt  # without a server or Ray
        if not options["force"]:  # which reads no remembered row
            for line in remembered_rows(job, description):
                screen.say(str(line))
    if scope.plan:
        screen.say(f"{job.name}: {scope.announcement}")
    if not (options["limit_rows"] or scope.plan):
        screen.expect(_expected_seconds(job, description))
    parameters, name = {**options, "job": str(job_path)}, f"{job.name}/{partition}"
    tags = [f"job:{job.name}", f"partition:{partition}"]
    receipt: dict[str, Any] = _run(batch_inference, parameters, job, name, tags, screen, ray_dashboard)
    return receipt


def _expected_seconds(job: Job, run: Run) -> Interval | None:
    """Return how long earlier runs of the job took; None without any, or if their receipts cannot be read."""
    with contextlib.suppress(OvernightError, OSError):
        receipts = earlier_receipts(run.state, run.partition_column, job.name, NEWEST, run.ledger.name)
        return run_seconds(experience(receipts, run.fingerprint), None)
    return None


def backfill_locally(job_path: Path, job: Job, screen: Screen, **options: Any) -> None:
    """Run a backfill now. `options` are parameters of the flow `backfill`.

    The screen shows the address of the UI and the progress. Raise `BackfillFailed` if partitions failed, and
    `OvernightError` if the backfill could not begin or was cancelled.
    """
    name = f"{job.name}/{scope_of(options['start'], options['end'], options['resume'])}"
    _run(backfill, {**options, "job": str(job_path)}, job, name, [f"job:{job.name}"], screen)


def search_locally(job_path: Path, show: bool = True, **question: Any) -> dict[str, Any]:
    """Search without Ray, and return the result. `question` holds parameters of the flow `similarity_search`.

    If `show`, print the address of the UI. Raise `OvernightError` if the search fails or is cancelled.
    """
    with _explained(), _server(show, partial(click.echo, err=True)):
        return dict(similarity_search(str(job_path), **question))


def screen_for(progress: bool, verbose: bool) -> Screen:
    """Return the screen of a call from Python, which shows nothing inside a flow: Prefect's log shows the run."""
    return Screen(Verbosity(quiet=not progress or is_in_a_flow(), verbose=verbose))


def is_in_a_flow() -> bool:
    """Return True inside a flow or a task that Prefect runs."""
    return FlowRunContext.get() is not None or TaskRunContext.get() is not None


def _run(
    flow: Flow[..., Any],
    parameters: dict[str, Any],
    job: Job,
    name: str,
    tags: list[str],
    screen: Screen,
    ray_dashboard: bool = False,
) -> Any:
    """Run the flow in this process, and return its result."""
    show = not screen.verbosity.quiet
    with contextlib.ExitStack() as stack:
        stack.enter_context(_explained())
        check_ray_address()
        stack.enter_context(modules_in(str(Path(parameters["job"]).parent)))
        stack.enter_context(fork_server_for_local_ray())
        screen.phase(SERVER_PHASE)
        stack.enter_context(_server(show, screen.say))
        stack.enter_context(server_known_to_workers())
        fork_server.preload(imports(job.models))
        if is_in_a_flow():
            return flow(**parameters)
        with get_client(sync_client=True) as client:
            # Calling the flow would make the run too; made here, its id is known before a user can cancel it.
            flow_run = client.create_flow_run(flow, name, parameters, state=Pending(), tags=tags)
        if flow is backfill:
            screen.say(f"backfill {parameters['resume'] or backfill_id(flow_run.id)}")
        if not ray.is_initialized():
            address = masked(os.environ.get("RAY_ADDRESS", ""))
            screen.phase(f"Connecting to Ray at {address}" if address else "Starting Ray, about 10 s")
        else:
            screen.phase("waiting for the first task")
        stack.enter_context(interruptible(flow_run.id, partial(screen.say, INTERRUPTED)))
        if show:
            stack.enter_context(following(screen, job.name, flow_run.id))
        stack.enter_context(failed_before_it_began(flow_run.id))
        if ray_dashboard or screen.verbosity.verbose:
            stack.enter_context(_ray(screen, ray_dashboard))
        return run_flow(flow, flow_run=flow_run)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise errors of the body as `OvernightError`, and an interrupt before a flow run exists as `RunCancelled`."""
    try:
        yield
    except KeyboardInterrupt:
        raise RunCancelled() from None
    except Exception as error:
        raise explain(error, "plan") from None


@contextlib.contextmanager
def _server(show: bool, say: Callable[[str], None]) -> Iterator[None]:
    """Provide a Prefect server: that of the flow that contains this call, otherwise the configured or a local one.

    If `show`, `say` its address. The run sends heartbeats as often as those of deployments. Prefect's default is every
    three minutes, and the automation of `overnight deploy` takes a run for dead after two.
    """
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: int(HEARTBEAT_SECONDS)}):
        if is_in_a_flow():
            with get_client(sync_client=True) as client:
                url = str(client.api_url).rstrip("/")
            with settings_shared(client_settings(url)):
                yield
            return
        with prefect_server(show) as url:
            if show:
                say(ui_line(url))
            yield


@contextlib.contextmanager
def _ray(screen: Screen, has_dashboard: bool) -> Iterator[None]:
    """Start Ray, or join the cluster. With a dashboard, print its address; if verbose, let Ray write to stderr.

    A terminal also shows the token that the dashboard needs, unless the user has set it. A log must not have it.
    """
    own_token = os.environ.get("RAY_AUTH_TOKEN")
    arguments: dict[str, Any] = {"include_dashboard": has_dashboard}
    if screen.verbosity.verbose:
        arguments |= {"log_to_driver": True, "logging_level": "INFO"}
    runner: OvernightTaskRunner[Any] = OvernightTaskRunner(init_kwargs=arguments)
    with runner:
        token = os.environ.get("RAY_AUTH_TOKEN")
        if has_dashboard:
            line = f"Ray's dashboard: {runner.dashboard or 'none'}"
            if token and token != own_token and sys.stderr.isatty():
                line += f", with the token {token}"
            screen.say(line)
        yield
