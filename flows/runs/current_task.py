"""The flow run under way, and the task that it submitted last: its stage, and the task run of a log line."""

from typing import Any
from uuid import UUID

from prefect.context import FlowRunContext


def is_run_of_deployment() -> bool:
    """Return True if the flow run under way was started through a deployment. The runs inside it were not."""
    context = FlowRunContext.get()
    return bool(context and context.flow_run and context.flow_run.deployment_id)


def stage() -> str:
    """Return the name of that task; "plan" before the first or outside a flow run."""
    return str(_of_task_runner("stage", "plan"))


def task_run_id() -> UUID | None:
    """Return the id of the run of that task; None before the first or outside a flow run."""
    found: UUID | None = _of_task_runner("task_run_id", None)
    return found


def of_task() -> dict[str, Any]:
    """Return the `extra` of a log record that puts the record under that task run in the Prefect UI."""
    found = task_run_id()
    return {"task_run_id": str(found)} if found else {}


def _of_task_runner(name: str, default: Any) -> Any:
    return getattr(getattr(FlowRunContext.get(), "task_runner", None), name, default)
