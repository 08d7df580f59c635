"""Jobs that follow jobs: a publish is an event on the Prefect server, and an automation starts the jobs that follow.

`overnight deploy` makes the automations. A run that an automation or a schedule starts waits, without a worker, until
all partitions that it needs are published: it ends, and the last of these publishes starts it again.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import prefect.runtime
from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.settings import get_current_settings
from prefect.states import Completed

from overnight.flows.job.model import Job
from overnight.flows.ledger.reader import read_files
from overnight.flows.ledger.upstreams import changes_upstream, lacking
from overnight.flows.schedule.run_partition import REQUESTED, request_run
from overnight.tasks.config.partition_names import partition_name, time_and_value
from overnight.tasks.config.periods import Unit, name_of, number_of_day
from overnight.tasks.errors import InputError
from overnight.tasks.state.run import Run, ledger_name

PUBLISHED = "overnight.partition.published"  # the event; its resource is the job
LONGER: tuple[Unit, ...] = ("day", "week", "month")
AUTOMATION = "AUTOMATION"  # Prefect's type of what created a run


def resource_of(job_name: str) -> str:
    """Return the id of a job as the resource of an event."""
    return f"overnight.job.{job_name}"


def announce(job: Job, run: Run, receipt: Mapping[str, Any]) -> None:
    """Send the event of a publish to the Prefect server. Without a server, which an undo may lack, do nothing.

    Its payload has the partition, and the hour, day, week and month of its begin, for jobs with longer partitions.
    """
    if run.limit_rows or not get_current_settings().api.url:
        return
    resource = {"prefect.resource.id": resource_of(run.job), "prefect.resource.name": run.job}
    time, value = time_and_value(run.partition)
    payload = {"partition": run.partition, "generation": receipt["generation"], "value": value, "hour": time}
    if job.periods and (day := job.periods.first_day(run.partition)):
        for unit in LONGER:
            payload[unit] = name_of(unit, number_of_day(unit, day))
    emit_event(PUBLISHED, resource=resource, payload=payload)


def started_partition(job: Job) -> str:
    """Return a template of Prefect: the partition of the job that follows, from the payload of the event."""
    if job.periods is None:
        return "all"
    unit = job.periods.every
    time = f"{{{{ event.payload.{unit} }}}}" if unit else ""
    return partition_name(time, "{{ event.payload.value }}" if job.periods.values else "")


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
    return not (run.auto_scheduled or is_by_automation or REQUESTED in run.tags)


def run_later(job: Job, run: Run) -> None:
    """Request runs of the published partitions after that of `run` whose `last N` has a newer publish.

    The event of a partition starts the run of this partition only. An error becomes a warning.
    """
    deployment = prefect.runtime.deployment.id
    if not deployment or all(after.count == 1 for after in job.run_after):
        return
    try:
        for later, sentence in _stale_later(job, run):
            key = f"overnight run after {deployment} {later} {run.generation}"
            with get_client(sync_client=True) as client:
                request_run(client, UUID(deployment), job, later, sentence, key)
            get_run_logger().info("%s/%s runs again: it %s", job.name, later, sentence)
    except Exception as error:
        get_run_logger().warning(
            "cannot request what follows %s/%s: %s: %s", job.name, run.partition, type(error).__name__, error
        )


def _stale_later(job: Job, run: Run) -> list[tuple[str, str]]:
    """Return the published partitions after the run's that follow an earlier publish, each with the reason."""
    later = {}
    for after in job.run_after:
        for name in after.moved(run.partition, range(1, after.count)):
            later[ledger_name(run.partition_column, name)] = name
    stale = []
    for ledger, content in read_files(run.state, set(later)).items():
        receipt = content.receipt
        if not receipt or receipt["job"] != job.name:
            continue
        if sentences := changes_upstream(job, later[ledger], receipt):
            stale.append((later[ledger], "; ".join(sentences)))
    return stale
