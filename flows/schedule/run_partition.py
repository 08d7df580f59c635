"""The partition of the current flow run: computed at its first start, and stored with the flow run.

It comes from the time for which the run was first scheduled. That is Prefect's `expected_start_time`, which stays the
same if a run is retried, waits for a slot or is scheduled again after a crash. The stored partition also outlasts a
change of the job's time zone or offset. It is a label of the flow run, because a copy of a run has no labels. If
several partitions are due, the run takes the first, and requests a run for each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import prefect.runtime
from prefect.client.orchestration import SyncPrefectClient, get_client

from overnight.flows.job.model import Job
from overnight.flows.runs.flow_run import note_name
from overnight.flows.schedule.partitions import NAMED, due_partitions
from overnight.tasks.errors import JobError, shortened

LABEL = "overnight.partition"
REQUESTED = "requested"  # the tag of a run that another run requested


@dataclass(frozen=True)
class ResolvedPartition:
    """A partition, and the scheduled time that determines it, in UTC, as ISO 8601. None: a user named the partition.

    `siblings` are the partitions that are due with it.
    """

    partition: str
    scheduled_for: str | None = None
    siblings: tuple[str, ...] = ()


def own_partition(job: Job, partition: str) -> ResolvedPartition:
    """Return the partition of the current flow run. Name and tag the flow run with its job and partition."""
    parameter = partition.strip()
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(prefect.runtime.flow_run.id))
        label = None if parameter else run.labels.get(LABEL)
        if label:
            day, *siblings = str(label).split()
        else:
            day, *siblings = due_partitions(job, parameter, run.expected_start_time, datetime.now(UTC))
            if not parameter:
                client.update_flow_run_labels(run.id, {LABEL: " ".join([day, *siblings])})
        name = f"{job.name}/{day}"
        tags = {*run.tags, f"job:{job.name}", f"partition:{day}"}
        if tags != set(run.tags) or name != run.name:
            client.update_flow_run(run.id, name=name, tags=sorted(tags)).raise_for_status()
    note_name(name)
    if parameter or run.expected_start_time is None:
        return ResolvedPartition(day)
    moment = run.expected_start_time.astimezone(UTC)
    scheduled_for = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return ResolvedPartition(day, scheduled_for, tuple(siblings))


def start_others(job: Job, own: ResolvedPartition) -> None:
    """Request a run of the current deployment for each other partition that is due, also if this run fails then."""
    if not own.siblings:
        return
    deployment = prefect.runtime.deployment.id
    if not deployment:
        names = shortened([own.partition, *own.siblings], NAMED)
        raise JobError(f"partition: expected one of {names}, which are all due; found none. Name one.")
    with get_client(sync_client=True) as client:
        for partition in own.siblings:
            key = f"overnight due {prefect.runtime.flow_run.id} {partition}"
            request_run(client, UUID(deployment), job, partition, f"due with {own.partition}", key)


def request_run(
    client: SyncPrefectClient,
    deployment: UUID,
    job: Job,
    partition: str,
    reason: str,
    key: str,
    tags: Sequence[str] = (),
) -> None:
    """Request a run of a partition from a deployment. A second request with the same key does nothing."""
    client.create_flow_run_from_deployment(
        deployment,
        name=f"{job.name}/{partition}",
        parameters={"partition": partition, "reason": reason},
        tags=[REQUESTED, *tags],
        idempotency_key=key,
    )
