"""Freshness: raise one event and send one notification if a partition is not published by `schedule.deadline`.

The deployment `freshness/<job>` runs at the deadline. It records the event and the notification in the partition's
ledger, in `late.json`. A lease lets one check at a time write that file, so two checks notify once. If a check is
killed or a notification fails, the next check sends what is missing.

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
UNTOLD = timedelta(days=7)  # checks try a failed notification again for this time
FLUSH_SECONDS = 5.0


class NotificationFailed(OvernightError):
    """Raised when a Prefect block could not send a notification."""


@flow(name="freshness", persist_result=False, retries=3, retry_delay_seconds=300)
def freshness(partition: str = "", *, job: str) -> None:
    """Notify if the due partition is not published, and send earlier notifications that failed.

    Args:
        partition: The day to check, as YYYY-MM-DD. Empty: the day whose deadline passed last before the scheduled time.
        job: The job file, as a path where the flow runs. The deployment sets it.
    """
    with named_if_invalid(invalid(job)):
        loaded = load_job(job)
        asked = _asked(loaded, partition)
    rename_flow_run(f"{loaded.name}/{asked.partition}")
    moment = prefect.runtime.flow_run.scheduled_start_time
    if asked.deadline > moment:
        get_run_logger().info("%s/%s is not due before %s", loaded.name, asked.partition, asked.deadline)
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
    """Yield earlier deadlines whose notification was not sent, oldest first."""
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
    job.state_location.make_private()
    try:
        with lease.held(place / "late", f"freshness-{prefect.runtime.flow_run.id}"):
            _notify_once(job, due, entry, place / "late.json")
    except lease.PartitionBusy:
        log.info("%s/%s is late, and another check sends the notification", job.name, due.partition)


def _entry(job: Job, partition: str) -> PartitionStatus:
    day = parse_day(partition) if job.is_dated else None
    return next(iter(read_ledger(job, day, day)), PartitionStatus(partition, "missing"))


def _notify_once(job: Job, due: Deadline, entry: PartitionStatus, record: Location) -> None:
    """Raise the event and send the notification, unless the record shows that they were sent."""
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
        emit_event(EVENT, names, payload=late, id=uuid.uuid5(uuid.NAMESPACE_URL, resource))  # a repeat has the same id
        send_logs_and_events(FLUSH_SECONDS)
        told["raised_at"] = now()
        write_json(record, told)
    block = job.schedule.notify if job.schedule else None
    if block and not told["notified_at"]:
        why = f"\n{'; '.join(entry.why)}" if entry.why else ""
        notify(
            block,
            f"{job.name}/{due.partition} is late",
            f"Its deadline was {deadline:%Y-%m-%d %H:%M %Z}. It is {entry.status}.{why}",
        )
        told["notified_at"] = now()
        write_json(record, told)


def notify(block: str, subject: str, text: str) -> None:
    """Send a message through the Prefect block `type/name`, without logging the block's address.

    Raise `JobError` if the server has no such notification block, and `NotificationFailed` if the block cannot send.
    """
    import prefect.blocks.notifications  # noqa: F401 - registers the block types

    try:
        found = Block.load(block)
    except ValueError as error:
        raise JobError(
            f"schedule.notify: expected a block {block} on the Prefect server, found none ({error}). Create it in the "
            "UI under Blocks, or name another: `prefect block ls` lists them."
        ) from None
    if not isinstance(found, NotificationBlock):
        raise JobError(f"schedule.notify: expected a notification block, found {block}, a {type(found).__name__}.")
    try:
        with found.raise_on_failure():
            found.notify(text, subject)  # type: ignore[unused-coroutine]
    except Exception as error:
        # The error's text may contain the address, which is a secret.
        status = getattr(getattr(error, "response", None), "status_code", "")
        raise NotificationFailed(
            f"schedule.notify: {block} did not send the notification: {type(error).__name__} {status}".rstrip()
            + ". The next check of the partition, or the check at the next deadline, sends it again, for a week."
        ) from None
