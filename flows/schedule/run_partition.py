"""The partition of the flow run that is under way: worked out at its first start, and kept with the flow run.

It comes from the time that the run was first scheduled for (Prefect's `expected_start_time`, which stays when a run is
retried, waits for a slot or is scheduled again after a crash). What is kept outlasts a change of the job's time zone or
offset too. It is kept as a label of the flow run, which a copy of the run does not take along; its tags are for people.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import prefect.runtime
from prefect.client.orchestration import get_client

from overnight.flows.job.model import Job
from overnight.flows.runs.flow_run_name import note_name
from overnight.flows.schedule.partitions import resolve_partition

LABEL = "overnight.partition"


@dataclass(frozen=True)
class ResolvedPartition:
    """A partition, and the time it comes from as receipts write it: None where somebody named the partition."""

    partition: str
    scheduled_for: str | None = None


def own_partition(job: Job, partition: str) -> ResolvedPartition:
    """What the flow run under way takes; `partition` is its parameter. Raises `JobError`.

    The flow run is named after its job and partition, and tagged with both.
    """
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(prefect.runtime.flow_run.id))
        kept = None if partition.strip() else run.labels.get(LABEL)
        day = str(kept) if kept else resolve_partition(job, partition, run.expected_start_time, datetime.now(UTC))
        if not partition.strip() and not kept:
            client.update_flow_run_labels(run.id, {LABEL: day})
        tags = {*run.tags, f"job:{job.name}", f"partition:{day}"}
        name = f"{job.name}/{day}"
        if tags != set(run.tags) or name != run.name:
            client.update_flow_run(run.id, name=name, tags=sorted(tags)).raise_for_status()
    note_name(name)
    if partition.strip() or run.expected_start_time is None:
        return ResolvedPartition(day)
    moment = run.expected_start_time.astimezone(UTC)
    return ResolvedPartition(day, moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
