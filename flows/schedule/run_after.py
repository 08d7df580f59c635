"""Jobs that follow jobs: a publish is an event on the Prefect server, and an automation starts the jobs that follow.

`overnight deploy` makes the automations. A run that an automation or a schedule starts waits, without a worker, until
all partitions that it needs are published: it ends, and the last of these publishes starts it again.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import prefect.runtime
from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.states import Completed

from overnight.flows.job.model import Job
from overnight.flows.ledger.reader import read_files
from overnight.flows.ledger.upstreams import changes_upstream, lacking
from overnight.tasks.errors import InputError
from overnight.tasks.state.run import Run, partition_directory

PUBLISHED = "overnight.partition.published"  # the event; its resource is the job
AUTOMATION = "AUTOMATION"  # Prefect's type of what created a run


def resource_of(job_name: str) -> str:
    """Return the id of a job as the resource of an event."""
    return f"overnight.job.{job_name}"


def announce(run: Run, receipt: Mapping[str, Any]) -> None:
    """Send the event of a publish to the Prefect server."""
    if run.limit_rows:
        return
    resource = {"prefect.resource.id": resource_of(run.job), "prefect.resource.name": run.job}
    payload = {"partition": run.partition, "generation": receipt["generation"]}
    emit_event(PUBLISHED, resource=resource, payload=payload)


def waiting(job: Job, partition: str) -> State[Any] | None:
    """Return the final state of a run that has to wait for a job that it follows, or None.

    Raise `InputError` if a user started the run: no event would start it again with the user's settings.
    """
    sentence = lacking(job, partition)
    if not sentence:
        return None
    if _is_started_by_user():
        raise InputError(f"run_after: {sentence}. Run that job first, or add --with-upstream to a backfill")
    return Completed(name="Waiting", message=f"waits: {sentence}. Its publish starts this job again.")


def _is_started_by_user() -> bool:
    if not prefect.runtime.deployment.id:
        return True
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(prefect.runtime.flow_run.id))
    is_by_automation = bool(run.created_by and run.created_by.type == AUTOMATION)
    return not (run.auto_scheduled or is_by_automation)


def run_later_days(job: Job, run: Run) -> None:
    """Request runs of the published days after that of `run` whose `last N` has a newer publish.

    The event of a day starts the run of this day only. An error becomes a warning.
    """
    days = max((after.days for after in job.run_after), default=1) - 1
    if not days or not prefect.runtime.deployment.id:
        return
    try:
        deployment = UUID(prefect.runtime.deployment.id)
        for later, sentence in _stale_days(job, run, days):
            with get_client(sync_client=True) as client:
                client.create_flow_run_from_deployment(
                    deployment,
                    name=f"{job.name}/{later}",
                    parameters={"partition": later, "reason": sentence},
                    idempotency_key=f"overnight run after {deployment} {later} {run.generation or run.attempt}",
                )
            get_run_logger().info("%s/%s runs again: it %s", job.name, later, sentence)
    except Exception as error:
        get_run_logger().warning(
            "cannot request the days after %s/%s: %s: %s", job.name, run.partition, type(error).__name__, error
        )


def _stale_days(job: Job, run: Run, days: int) -> list[tuple[str, str]]:
    """Return the published days among the `days` after the run's that follow an earlier publish, with the reason."""
    first = date.fromisoformat(run.partition)
    later = {}
    for number in range(1, days + 1):
        day = (first + timedelta(days=number)).isoformat()
        later[partition_directory(run.partition_column, day)] = day
    stale = []
    for name, ledger in read_files(run.state, set(later)).items():
        receipt = ledger.receipt
        if not receipt or receipt["job"] != job.name:
            continue
        if sentences := changes_upstream(job, later[name], receipt):
            stale.append((later[name], "; ".join(sentences)))
    return stale
