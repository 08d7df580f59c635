"""The partition of the current flow run: computed at its first start, and stored with the flow run.

It comes from the time for which the run was first scheduled. That is Prefect's `expected_start_time`, which stays the
same if a run is retried, waits for a slot or is scheduled again after a crash. The stored partition also outlasts a
change of the job's time zone or offset. It is a label of the flow run, because a copy of a run has no labels.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import prefect.runtime
from prefect.client.orchestration import get_client

from overnight.flows.job.model import Job
from overnight.flows.runs.flow_run import note_name
from overnight.flows.schedule.partitions import resolve_partition

LABEL = "overnight.partition"


@dataclass(frozen=True)
class ResolvedPartition:
    """A partition, and the scheduled time that determines it, in UTC, as ISO 8601. None: a user named the partition."""

    partition: str
    scheduled_for: str | None = None


def own_partition(job: Job, partition: str) -> ResolvedPartition:
    """Return the partition of the current flow run. Name and tag the flow run with its job and partition."""
    parameter = partition.strip()
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(prefect.runtime.flow_run.id))
        label = None if parameter else run.labels.get(LABEL)
        if label:
            day = str(label)
        else:
            day = resolve_partition(job, parameter, run.expected_start_time, datetime.now(UTC))
            if not parameter:
                client.update_flow_run_labels(run.id, {LABEL: day})
        name = f"{job.name}/{day}"
        tags = {*run.tags, f"job:{job.name}", f"partition:{day}"}
        if tags != set(run.tags) or name != run.name:
            client.update_flow_run(run.id, name=name, tags=sorted(tags)).raise_for_status()
    note_name(name)
    if parameter or run.expected_start_time is None:
        return ResolvedPartition(day)
    moment = run.expected_start_time.astimezone(UTC)
    return ResolvedPartition(day, moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
