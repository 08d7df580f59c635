"""The Prefect task that the flow run submitted last: its stage, and the task run of a log line or an artifact."""

from typing import Any
from uuid import UUID

from prefect.context import FlowRunContext


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
