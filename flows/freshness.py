"""Freshness: a partition that is not published by `schedule.deadline` raises an event and sends a notification, once.

The deployment `freshness/<job>` runs at the deadline. What was told stands in the partition's ledger, in `late.json`,
which one check at a time may write: so two checks tell once, and what a check that was killed or a notification that
failed left untold is told by the next one.

    event     overnight.partition.late, of the resource overnight.partition.<job>.<partition>
    payload   job, partition, deadline, status, why
"""

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta

import prefect.runtime
from prefect import flow, get_run_logger
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.events import emit_event

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.runs.flow_run_name import invalid, named_if_invalid, rename_flow_run
from overnight.flows.runs.prefect_internals import send_logs_and_events
from overnight.flows.schedule.cron import cron_times
from overnight.flows.schedule.deadlines import Deadline, deadline_after, deadline_of, latest_deadline, scheduled
from overnight.flows.schedule.partitions import parse_day, resolve_partition
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.state import lease
from overnight.tasks.state.run import now, read_json, write_json
from overnight.tasks.storage.location import Location

EVENT = "overnight.partition.late"
UNTOLD = timedelta(days=7)  # for so long a notification that failed is tried again
FLUSH_SECONDS = 5.0


class NotificationFailed(OvernightError):
    """The Prefect block did not take a notification."""


@flow(name="freshness", persist_result=False, retries=3, retry_delay_seconds=300)
def freshness(partition: str = "", *, job: str) -> None:
    """Tells of the partition that was due, if it is not published; and of earlier ones that could not be told of.

    Args:
        partition: The date to look at, as YYYY-MM-DD. Empty: the one whose deadline was last, at the scheduled time.
        job: The job file, as a path where the flow runs. Set by the deployment.
    """
    with named_if_invalid(invalid(job)):
        loaded = load_job(job)
        asked = _asked(loaded, partition)
    rename_flow_run(f"{loaded.name}/{asked.partition}")
    moment = prefect.runtime.flow_run.scheduled_start_time
    if asked.deadline > moment:
        get_run_logger().info("%s/%s is due at %s, later than now", loaded.name, asked.partition, asked.deadline)
        return
    for due in [*_unnotified_deadlines(loaded, asked), asked]:
        _check(loaded, due)


def _asked(job: Job, partition: str) -> Deadline:
    moment: datetime = prefect.runtime.flow_run.scheduled_start_time
    if partition.strip() and job.is_dated:
        return deadline_of(job, resolve_partition(job, partition, moment, moment))
    resolve_partition(job, partition, moment, moment)
    return latest_deadline(job, moment)


def _unnotified_deadlines(job: Job, last: Deadline) -> Iterator[Deadline]:
    """Partitions of earlier deadlines, the oldest first, of which somebody was to be notified and was not."""
    schedule = scheduled(job)
    if not schedule.notify:
        return
    partitions = {
        resolve_partition(job, None, fire, fire): fire
        for fire in cron_times(schedule, last.deadline - UNTOLD, last.deadline - timedelta(days=1))
    }
    partitions.pop(last.partition, None)
    for partition, fire in partitions.items():
        told = read_json(job.ledger(partition) / "late.json")
        if told and not told["notified_at"]:
            yield Deadline(partition, deadline_after(schedule, fire))


def _check(job: Job, due: Deadline) -> None:
    log = get_run_logger()
    entry = _entry(job, due.partition)
    if entry.receipt:
        log.info("%s/%s is published", job.name, due.partition)
        return
    place = job.ledger(due.partition)
    try:
        with lease.held(place / "late", f"freshness-{prefect.runtime.flow_run.id}"):
            _notify_once(job, due, entry, place / "late.json")
    except lease.PartitionBusy:
        log.info("%s/%s is late, and another check is telling it", job.name, due.partition)


def _entry(job: Job, partition: str) -> PartitionStatus:
    day = parse_day(partition) if job.is_dated else None
    return next(iter(read_ledger(job, day, day)), PartitionStatus(partition, "missing"))


def _notify_once(job: Job, due: Deadline, entry: PartitionStatus, record: Location) -> None:
    """Raises the event and sends the notification, unless the record says that this was done."""
    deadline = due.deadline.astimezone(job.timezone)
    late = {
        **{"job": job.name, "partition": due.partition, "deadline": deadline.isoformat()},
        **{"status": entry.status, "why": list(entry.why)},
    }
    told = read_json(record) or {**late, "raised_at": None, "notified_at": None}
    resource = f"overnight.partition.{job.name}.{due.partition}"
    if not told["raised_at"]:
        get_run_logger().warning("%s/%s was not published by %s: %s", job.name, due.partition, deadline, entry.status)
        names = {"prefect.resource.id": resource, "prefect.resource.name": f"{job.name}/{due.partition}"}
        emit_event(EVENT, names, payload=late, id=uuid.uuid5(uuid.NAMESPACE_URL, resource))  # again, it is the same one
        send_logs_and_events(FLUSH_SECONDS)
        told["raised_at"] = now()
        write_json(record, told)
    block = job.schedule.notify if job.schedule else None
    if block and not told["notified_at"]:
        why = f"\n{'; '.join(entry.why)}" if entry.why else ""
        notify(
            block,
            f"{job.name}/{due.partition} is late",
            f"It was to be published by {deadline:%Y-%m-%d %H:%M %Z} and is {entry.status}.{why}",
        )
        told["notified_at"] = now()
        write_json(record, told)


def notify(block: str, subject: str, text: str) -> None:
    """Send it through the Prefect block `type/name`, and log no address of it.

    Raise `JobError` if there is no such block, and `NotificationFailed` if it cannot send.
    """
    import prefect.blocks.notifications  # noqa: F401 - so that Prefect knows its types

    try:
        found = Block.load(block)
    except ValueError as error:
        raise JobError(
            f"schedule.notify: expected a block {block} on the Prefect server, found none ({error}). Make it in the "
            "UI under Blocks, or name another: `prefect block ls` lists them."
        ) from None
    if not isinstance(found, NotificationBlock):
        raise JobError(f"schedule.notify: expected a notification block, found {block}, a {type(found).__name__}.")
    try:
        with found.raise_on_failure():
            found.notify(text, subject)  # type: ignore[unused-coroutine]
    except Exception as error:
        # Its words may hold the address, which is a secret.
        status = getattr(getattr(error, "response", None), "status_code", "")
        raise NotificationFailed(
            f"schedule.notify: {block} did not take the notification: {type(error).__name__} {status}".rstrip()
            + ". It is sent again by the next check of the partition, or at the next deadline, for a week."
        ) from None
