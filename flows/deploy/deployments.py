"""The deployments of a job: which flows it is deployed with, and when each runs by itself.

A flow more is a line in `DEPLOYED`, and an entry a job in deployments/prefect.yaml.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from prefect import Flow
from prefect.client.schemas.schedules import CronSchedule

from overnight.flows.job.model import Job
from overnight.flows.schedule.deadlines import deadline_cron

When = Callable[[Job], CronSchedule | None]


class UndeployedJob(Exception):
    """A job has no deployment of this flow, for the reason given."""


def at_cron(job: Job) -> CronSchedule | None:
    """When the job's schedule says."""
    return CronSchedule(cron=job.schedule.cron, timezone=job.schedule.timezone) if job.schedule else None


def on_request(job: Job) -> None:
    """Never by itself. Raises `UndeployedJob` for a job without dates, which has nothing to fill."""
    if not job.is_dated:
        raise UndeployedJob("its job file has no {partition} in its source")


def at_deadline(job: Job) -> CronSchedule:
    """Each day at the deadline, on the job's clock. Raises `UndeployedJob` for a job without one."""
    if not (job.schedule and job.schedule.deadline):
        raise UndeployedJob("its job file has no schedule.deadline")
    return CronSchedule(cron=deadline_cron(job.schedule), timezone=job.schedule.timezone)


DEPLOYED: dict[str, When] = {
    "overnight.flows.batch_inference.batch_inference": at_cron,
    "overnight.flows.backfill.backfill": on_request,
    "overnight.flows.freshness.freshness": at_deadline,
}


def flow_at(entrypoint: str) -> Flow[..., Any]:
    """The flow that an entrypoint names by module."""
    module, _, name = entrypoint.rpartition(".")
    found: Flow[..., Any] = getattr(import_module(module), name)
    return found
