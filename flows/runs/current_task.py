"""The Prefect task run to which a log line or an artifact of the flow belongs."""

from typing import Any
from uuid import UUID

from prefect.context import FlowRunContext


def task_run_id() -> UUID | None:
    """Return the id of the task run that this flow run submitted last; None before the first or outside a flow run."""
    found: UUID | None = getattr(getattr(FlowRunContext.get(), "task_runner", None), "task_run_id", None)
    return found


def of_task() -> dict[str, Any]:
    """Return the `extra` of a log record that puts the record under that task run in the Prefect UI."""
    found = task_run_id()
    return {"task_run_id": str(found)} if found else {}
