"""All undocumented parts of Prefect that Overnight uses: Prefect 3.9's cron, engine, senders and forms.

The senders are in an undocumented list of Python, too: 3.11 to 3.13 have it.

`tests/flows/runs/test_prefect_internals.py` fails if any of them moves. The undocumented parts of prefect-ray are in
`task_future.py`.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import prefect
from prefect._internal.concurrency.threads import get_global_loop
from prefect.context import SettingsContext
from prefect.events.worker import EventsWorker
from prefect.flow_engine import run_flow
from prefect.logging.handlers import APILogWorker

from overnight.tasks.errors import OvernightError

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

WRITTEN_FOR = "3.9."
SENDERS = (EventsWorker, APILogWorker)

if not prefect.__version__.startswith(WRITTEN_FOR):
    raise OvernightError(
        f"expected Prefect {WRITTEN_FOR}*, whose scheduler computes the times of jobs; found {prefect.__version__}. "
        f"Install it: pip install 'prefect=={WRITTEN_FOR}*'."
    )

__all__ = ["NoSettings", "change_form", "cron_dates", "run_flow", "send_logs_and_events"]


class NoSettings(SettingsContext):
    """Settings that serialize to an empty object, so that a worker uses its own settings."""

    def serialize(self, include_secrets: bool = True) -> dict[str, Any]:
        return {}


def cron_dates(cron: str, timezone: str, count: int, start: datetime, end: datetime) -> Sequence[datetime]:
    """Return the first `count` times from `start` to `end` at which Prefect's server fires a cron schedule."""
    from prefect.server.schemas.schedules import CronSchedule  # the server's code takes a second to import

    return asyncio.run(CronSchedule(cron=cron, timezone=timezone).get_dates(count, start, end))


def change_form(deployment: "RunnerDeployment", change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the parameters of the form from which a user starts a run of a deployment: name -> JSON schema."""
    schema = deployment._parameter_openapi_schema
    schema.properties = change(schema.properties)


def send_logs_and_events(timeout_seconds: float) -> None:
    """Send the events and the logs of this process to the Prefect server, in at most this time for each."""
    for worker in SENDERS:
        worker.drain_all(timeout=timeout_seconds, at_exit=False)
    _forget_senders()


def _forget_senders() -> None:
    """Let the senders that have ended be collected. Otherwise a worker grows by 18 MB with each run of a backfill.

    Prefect registers each of them, with its clients, for the end of its loop's thread and of Python.
    """
    for calls, function in ((get_global_loop()._on_shutdown, "fn"), (threading._threading_atexits, "func")):  # type: ignore[attr-defined]
        for call in list(calls):
            sender = getattr(getattr(call, function), "__self__", None)
            if isinstance(sender, SENDERS) and sender._stopped:
                calls.remove(call)
