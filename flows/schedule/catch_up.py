"""Catch up after downtime, as `schedule.catch_up` sets it: all, latest or none.

Prefect's scheduler creates only a few runs ahead (three, or those of an hour), and none while the server is down. So
each run from the scheduler checks, before it begins, the times that fell due until a worker took the run. It creates
missing runs by the scheduler's own route, with its key for that time, so several late runs create one run.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import prefect.runtime
from prefect import get_run_logger
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
)
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Completed
from prefect.types import DateTime

from overnight.flows.job.model import Job
from overnight.flows.job.schedule import Schedule
from overnight.flows.schedule.cron import cron_times
from overnight.flows.schedule.partitions import NAMED, due_partitions
from overnight.tasks.errors import shortened

# What the choices of `schedule.catch_up` do with the times that fell due:
#
#    latest   the newest time gets a run if it has none, and the other runs end as Completed, named Skipped
#    all      each time gets a run if it has none, oldest first; the deployment's limit bounds the runs at a time
#    none     a run that a worker takes more than an hour late is Skipped
LATE = timedelta(hours=1)
NOT_PICKED_UP = ("Scheduled", "Late")
PAGE = 200


def skipped(job: Job, partition: str) -> State[Any] | None:
    """Schedule the runs that a downtime missed, as `schedule.catch_up` sets it.

    Return the final state of the current run if another one replaces it or it is too late.
    """
    runtime = prefect.runtime
    if job.schedule is None or partition.strip() or not runtime.deployment.id or runtime.flow_run.run_count > 1:
        return None
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(runtime.flow_run.id))
        if not run.auto_scheduled or run.expected_start_time is None:
            return None
        scheduled = run.expected_start_time
        picked_up = picked_up_at(client.read_flow_run_states(run.id)) or datetime.now(UTC)
        due = cron_times(job.schedule, scheduled, picked_up)
        times = _scheduled_times(client, run, picked_up)
        for fire in missed_cron_times(job.schedule, due, times):
            get_run_logger().info("the run of %s is missing; scheduling it now", fire.isoformat())
            _schedule(client, run, fire)
            times = _scheduled_times(client, run, picked_up)
    reason = why_skipped(job, scheduled, picked_up, times)
    return Completed(name="Skipped", message=reason) if reason else None


def missed_cron_times(schedule: Schedule, due: Sequence[datetime], taken: Collection[datetime]) -> list[datetime]:
    """Return the times in `due` that need a run now, as `catch_up` sets it. The times in `taken` have one already."""
    fires = {"all": due, "latest": due[-1:], "none": []}[schedule.catch_up]
    return [fire for fire in fires if fire not in taken]


def why_skipped(job: Job, scheduled: datetime, picked_up: datetime, taken: Collection[datetime]) -> str:
    """Return the reason to skip a run, or an empty string."""
    catch_up = job.schedule.catch_up if job.schedule else "all"
    day = shortened(due_partitions(job, None, scheduled, scheduled), NAMED)
    advice = f"schedule.catch_up is {catch_up!r}. To run {day}, retry this run."
    later = [time for time in taken if scheduled < time <= picked_up]
    if catch_up == "latest" and later:
        newest = shortened(due_partitions(job, None, max(later), picked_up), NAMED)
        return (
            f"{day} was due at {_clock(job, scheduled)} and could not start then. {newest}, due at "
            f"{_clock(job, max(later))}, runs instead: {advice}"
        )
    if catch_up == "none" and picked_up - scheduled > LATE:
        return (
            f"{day} was due at {_clock(job, scheduled)} and could not start before {_clock(job, picked_up)}: {advice}"
        )
    return ""


def _clock(job: Job, moment: datetime) -> str:
    return f"{moment.astimezone(job.timezone):%Y-%m-%d %H:%M %Z}"


def picked_up_at(states: Sequence[State]) -> datetime | None:
    """Return the time at which a worker first took the run with these states, or None if no worker took it."""
    return min((state.timestamp for state in states if state.name not in NOT_PICKED_UP), default=None)


def _scheduled_times(client: SyncPrefectClient, run: FlowRun, until: datetime) -> set[datetime]:
    """Return the times from the run's own to `until` for which the deployment has a scheduled run."""
    in_range = FlowRunFilterExpectedStartTime(after_=run.expected_start_time, before_=DateTime.instance(until))
    of_deployment = FlowRunFilterDeploymentId(any_=[run.deployment_id] if run.deployment_id else [])
    same = FlowRunFilter(deployment_id=of_deployment, expected_start_time=in_range)
    times: set[datetime] = set()
    offset = 0
    while page := client.read_flow_runs(flow_run_filter=same, limit=PAGE, offset=offset):
        times.update(twin.expected_start_time for twin in page if twin.auto_scheduled and twin.expected_start_time)
        offset += len(page)
    return times


def _schedule(client: SyncPrefectClient, run: FlowRun, fire: datetime) -> None:
    """Let the scheduler create the run of this time. It does nothing if the run exists or the schedule is off."""
    moment = fire.isoformat()
    body = {"start_time": moment, "end_time": moment, "min_time": 0.0, "min_runs": 1, "max_runs": 1}
    path = {"id": run.deployment_id}
    client.request("POST", "/deployments/{id}/schedule", path_params=path, json=body).raise_for_status()
