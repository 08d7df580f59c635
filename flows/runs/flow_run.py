"""The flow run under way: its name, and the task that it submitted last."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import prefect.runtime
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext

from overnight.tasks.errors import OvernightError


def is_run_of_deployment() -> bool:
    """Return True if the flow run under way was started through a deployment. The runs inside it were not."""
    context = FlowRunContext.get()
    return bool(context and context.flow_run and context.flow_run.deployment_id)


def stage() -> str:
    """Return the name of that task; "plan" before the first or outside a flow run."""
    return str(_of_task_runner("stage", "plan"))


def task_run_id() -> UUID | None:
    """Return the id of the run of that task; None before the first or outside a flow run."""
    run_id: UUID | None = _of_task_runner("task_run_id", None)
    return run_id


def of_task() -> dict[str, Any]:
    """Return the `extra` of a log record that puts the record under that task run in the Prefect UI."""
    run_id = task_run_id()
    return {"task_run_id": str(run_id)} if run_id else {}


def _of_task_runner(name: str, default: Any) -> Any:
    return getattr(getattr(FlowRunContext.get(), "task_runner", None), name, default)


def rename_flow_run(name: str) -> None:
    """Give the flow run under way this name, in the server and in this process.

    Prefect's own `flow_run_name` would load the job a second time.
    """
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(prefect.runtime.flow_run.id), name=name).raise_for_status()
    note_name(name)


def note_name(name: str) -> None:
    """Change the name of the flow run in this process only: for its log, and for `prefect.runtime.flow_run.name`."""
    context = FlowRunContext.get()
    if context and context.flow_run:
        context.flow_run.name = name


@contextlib.contextmanager
def named_if_invalid(name: str) -> Iterator[None]:
    """Give the flow run under way this name if the body, which loads its job, raises an `OvernightError`."""
    try:
        yield
    except OvernightError:
        with contextlib.suppress(Exception):  # the error matters more than the name
            rename_flow_run(name)
        raise


def invalid(job_path: str) -> str:
    """Return the name for a flow run whose job or partition is invalid: `<name of the job file>/invalid`."""
    return f"{Path(job_path).stem}/invalid"
