"""Overnight: offline batch inference that people trust to run while they sleep.

The names of the Python API are imported on first use, because each Ray worker imports this package:

    import overnight
    receipt = overnight.run("job.yaml", partition="2026-11-19")
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overnight import extend, models, shuffles, sinks, sources, steps
    from overnight.api.inspecting import load, preview, search, status, verify
    from overnight.api.receipt import Receipt
    from overnight.api.running import backfill, run, undo
    from overnight.flows.backfill import BackfillFailed
    from overnight.flows.job.model import Job
    from overnight.flows.job.retries import Retries
    from overnight.flows.job.schedule import Schedule
    from overnight.flows.runs.cancellation import RunCancelled
    from overnight.tasks.errors import CheckFailed, InputError, JobError, OvernightError
    from overnight.tasks.write.checks.settings import Checks

_MODULES = ("extend", "models", "shuffles", "sinks", "sources", "steps")
# The module of each name.
_NAMES = {
    "BackfillFailed": "flows.backfill",
    "CheckFailed": "tasks.errors",
    "Checks": "tasks.write.checks.settings",
    "InputError": "tasks.errors",
    "Job": "flows.job.model",
    "JobError": "tasks.errors",
    "OvernightError": "tasks.errors",
    "Receipt": "api.receipt",
    "Retries": "flows.job.retries",
    "RunCancelled": "flows.runs.cancellation",
    "Schedule": "flows.job.schedule",
    "backfill": "api.running",
    "load": "api.inspecting",
    "preview": "api.inspecting",
    "run": "api.running",
    "search": "api.inspecting",
    "status": "api.inspecting",
    "undo": "api.running",
    "verify": "api.inspecting",
}

__all__ = [
    "BackfillFailed",
    "CheckFailed",
    "Checks",
    "InputError",
    "Job",
    "JobError",
    "OvernightError",
    "Receipt",
    "Retries",
    "RunCancelled",
    "Schedule",
    "backfill",
    "extend",
    "load",
    "models",
    "preview",
    "run",
    "search",
    "shuffles",
    "sinks",
    "sources",
    "status",
    "steps",
    "undo",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a name of the API when code uses it for the first time."""
    if name in _MODULES:
        return importlib.import_module(f"overnight.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module 'overnight' has no attribute {name!r}")
    from overnight.api.process_state import restored

    with restored():  # the import of Prefect sets up logging
        return getattr(importlib.import_module(f"overnight.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
