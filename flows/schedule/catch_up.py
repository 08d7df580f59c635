"""Catching up after downtime, as `schedule.catch_up` says: all, latest or none.

Prefect's scheduler makes only a few runs ahead (three, or an hour's), and none while the server is down. So after five
days there are three late runs, which all start, and the later days have none. Each run that the scheduler made looks,
before it begins, at what fell due until somebody picked it up:

    latest   the newest gets a run if it has none, and the others end as Completed, named Skipped
    all      each gets a run if it has none, oldest first; the deployment's limit says how many run at a time
    none     a run that is picked up more than an hour late is Skipped

Runs are made by the scheduler's own route, with its key for that time: late runs that look at once make one, and its
scheduled time is the missed one. A run by hand, a retry or a run that waited for its turn is never skipped: to run a
skipped partition all the same, retry its run.
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
from overnight.flows.schedule.partitions import resolve_partition

LATE = timedelta(hours=1)
NOT_PICKED_UP = ("Scheduled", "Late")
PAGE = 200


def skipped(job: Job, partition: str) -> Any:
    """The state in which the flow run under way is to end at once, or None; gives runs to those that missed theirs.

    `partition` is the run's parameter.
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
        taken = _scheduled_times(client, run, picked_up)
        for fire in missed_cron_times(job.schedule, due, taken):
            get_run_logger().info("nothing ran at %s: a run for it is scheduled now", fire.isoformat())
            _schedule(client, run, fire)
            taken = _scheduled_times(client, run, picked_up)
    why = why_skipped(job, scheduled, picked_up, taken)
    return Completed(name="Skipped", message=why) if why else None


def missed_cron_times(schedule: Schedule, due: Sequence[datetime], taken: Collection[datetime]) -> list[datetime]:
    """Which of the times that fell `due` are given a run; `taken` have one."""
    wanted = {"all": due, "latest": due[-1:], "none": []}[schedule.catch_up]
    return [fire for fire in wanted if fire not in taken]


def why_skipped(job: Job, scheduled: datetime, picked_up: datetime, taken: Collection[datetime]) -> str:
    """Why a run that was `scheduled` then does not run, or an empty string; `taken`: the times that have runs."""
    schedule = job.schedule or Schedule(cron="0 0 * * *", catch_up="all")
    own = resolve_partition(job, None, scheduled, scheduled)
    anyway = f"To run {own} all the same, retry this run."
    later = [time for time in taken if scheduled < time <= picked_up]
    if schedule.catch_up == "latest" and later:
        instead = resolve_partition(job, None, max(later), picked_up)
        return (
            f"{own} was due at {_clock(job, scheduled)} and could not start then. {instead}, due at "
            f"{_clock(job, max(later))}, runs instead: schedule.catch_up is latest. {anyway}"
        )
    if schedule.catch_up == "none" and picked_up - scheduled > LATE:
        return (
            f"{own} was due at {_clock(job, scheduled)} and could not start before {_clock(job, picked_up)}: "
            f"schedule.catch_up is none. {anyway}"
        )
    return ""


def _clock(job: Job, moment: datetime) -> str:
    return f"{moment.astimezone(job.timezone):%Y-%m-%d %H:%M %Z}"


def picked_up_at(states: Sequence[State]) -> datetime | None:
    """When a worker first took the run, whether or not it then had to wait for its turn."""
    return min((state.timestamp for state in states if state.name not in NOT_PICKED_UP), default=None)


def _scheduled_times(client: SyncPrefectClient, run: FlowRun, until: datetime) -> set[datetime]:
    """The times, from the run's own until `until`, for which the deployment has a run of its schedule."""
    wanted = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[run.deployment_id] if run.deployment_id else []),
        expected_start_time=FlowRunFilterExpectedStartTime(
            after_=run.expected_start_time, before_=DateTime.instance(until)
        ),
    )
    found: set[datetime] = set()
    offset = 0
    while page := client.read_flow_runs(flow_run_filter=wanted, limit=PAGE, offset=offset):
        found.update(other.expected_start_time for other in page if other.auto_scheduled and other.expected_start_time)
        offset += len(page)
    return found


def _schedule(client: SyncPrefectClient, run: FlowRun, fire: datetime) -> None:
    """Has the scheduler make the run of this time; nothing happens where it has, or its schedule is switched off."""
    moment = fire.isoformat()
    body = {"start_time": moment, "end_time": moment, "min_time": 0.0, "min_runs": 1, "max_runs": 1}
    path = {"id": run.deployment_id}
    client.request("POST", "/deployments/{id}/schedule", path_params=path, json=body).raise_for_status()
