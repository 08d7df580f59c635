"""The name of the flow run under way, as lists of flow runs show it.

The flow names its run after it has loaded its job. Prefect's own `flow_run_name` would need the job a second time.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import prefect.runtime
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext

from overnight.tasks.errors import OvernightError


def rename_flow_run(name: str) -> None:
    """Give the flow run under way this name, in the server and in this process."""
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
