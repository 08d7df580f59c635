"""The deployments of a job: the flows that it is deployed with, and the schedule of each.

To add a flow, add a line to `DEPLOYED` and an entry for each job to deployments/prefect.yaml.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.schemas.schedules import CronSchedule

from overnight.flows.job.model import Job
from overnight.flows.schedule.deadlines import deadline_cron

When = Callable[[Job], CronSchedule | None]


class UndeployedJob(Exception):
    """Raised when a flow does not fit a job, so that the job gets no deployment of it. The message is the reason."""


def at_cron(job: Job) -> CronSchedule | None:
    return CronSchedule(cron=job.schedule.cron, timezone=job.schedule.timezone) if job.schedule else None


def on_request(job: Job) -> None:
    """Return None, because a backfill has no schedule. Raise `UndeployedJob` for a job without dates."""
    if not job.is_dated:
        raise UndeployedJob("its job file has no {partition} in its source")


def at_deadline(job: Job) -> CronSchedule:
    """Return a schedule that fires each day at the job's deadline. Raise `UndeployedJob` if the job has no deadline."""
    if not (job.schedule and job.schedule.deadline):
        raise UndeployedJob("its job file has no schedule.deadline")
    return CronSchedule(cron=deadline_cron(job.schedule), timezone=job.schedule.timezone)


RUN = "overnight.flows.batch_inference.batch_inference"
DEPLOYED: dict[str, When] = {
    RUN: at_cron,
    "overnight.flows.backfill.backfill": on_request,
    "overnight.flows.freshness.freshness": at_deadline,
}


def flows_of(job: Job) -> Iterator[tuple[Flow[..., Any], CronSchedule | None]]:
    for entrypoint, when in DEPLOYED.items():
        try:
            schedule = when(job)
        except UndeployedJob:
            continue
        yield flow_at(entrypoint), schedule


def describe(flow: Flow[..., Any], job: Job, path: Path) -> str:
    """Return the description of a deployment, as Markdown."""
    lines = [str(flow.description), f"Job file: {path}"]
    lines.append(f"The Runs page has all runs of this job, also those from a terminal, by their tag `job:{job.name}`.")
    return "\n\n".join(lines)


def flow_at(entrypoint: str) -> Flow[..., Any]:
    """Import and return the flow of an entrypoint such as `package.module.flow`."""
    module, _, name = entrypoint.rpartition(".")
    flow: Flow[..., Any] = getattr(import_module(module), name)
    return flow


def deployed_flows() -> set[str]:
    return {flow_at(entrypoint).name for entrypoint in DEPLOYED}
