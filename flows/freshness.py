"""Freshness: raise one event and send one message to each receiver if a partition is not published by its deadline.

The deployment `freshness/<job>` runs at `schedule.deadline`. `late.json` in the partition's ledger records the event
and the messages. A lease lets one check at a time write that file. The next check sends what is missing.
"""

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import prefect.runtime
from prefect import flow, get_run_logger
from prefect.events import emit_event

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.job.notify import Receiver
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.notices.message import Message, harmless
from overnight.flows.notices.sending import NotificationFailed, send
from overnight.flows.runs.flow_run import invalid, named_if_invalid, rename_flow_run
from overnight.flows.runs.prefect_internals import send_logs_and_events
from overnight.flows.schedule.cron import cron_times
from overnight.flows.schedule.deadlines import Deadline, deadline_after, deadline_of, latest_deadlines, scheduled
from overnight.flows.schedule.partitions import due_partitions, resolve_partition
from overnight.tasks.errors import OvernightError
from overnight.tasks.state import lease
from overnight.tasks.state.run import now, read_json, write_json
from overnight.tasks.storage.location import Location

# Of the resource overnight.partition.<job>.<partition>, with job, partition, deadline, status and why as payload.
EVENT = "overnight.partition.late"
UNTOLD = timedelta(days=7)  # checks try a failed notification again for this time
FLUSH_SECONDS = 5.0


@flow(name="freshness", persist_result=False, retries=3, retry_delay_seconds=300)
def freshness(partition: str = "", *, job: str) -> None:
    """Notify if the due partition is not published, and send earlier notifications that failed.

    Args:
        partition: The day to check, as YYYY-MM-DD. Empty: the day whose deadline passed last before the scheduled time.
        job: The job file, as a path where the flow runs. The deployment sets it.
    """
    moment: datetime = prefect.runtime.flow_run.scheduled_start_time
    with named_if_invalid(invalid(job)):
        full_job = load_job(job)
        day = resolve_partition(full_job, partition, moment, moment)
        is_day = bool(partition.strip()) and full_job.is_dated
        dues = [deadline_of(full_job, day, moment)] if is_day else latest_deadlines(full_job, moment)
    due = dues[-1]
    rename_flow_run(f"{full_job.name}/{due.partition}")
    if due.deadline > moment:
        get_run_logger().info("%s/%s is not due before %s", full_job.name, due.partition, due.deadline)
        return
    for deadline in [*_unnotified_deadlines(full_job, dues), *dues]:
        _check(full_job, deadline)


def _unnotified_deadlines(job: Job, last: list[Deadline]) -> Iterator[Deadline]:
    schedule = scheduled(job)
    if not _receivers(job):
        return
    fires = cron_times(schedule, last[0].deadline - UNTOLD, last[0].deadline - timedelta(days=1))
    partitions = {name: fire for fire in fires for name in due_partitions(job, None, fire, fire)}
    for due in last:
        partitions.pop(due.partition, None)
    for partition, fire in partitions.items():
        record = read_json(job.ledger(partition) / "late.json")
        if record and not record["notified_at"]:
            yield Deadline(partition, deadline_after(schedule, fire))


def _check(job: Job, due: Deadline) -> None:
    log = get_run_logger()
    [entry] = read_ledger(job, only=[due.partition])
    if entry.receipt:
        log.info("%s/%s is published", job.name, due.partition)
        return
    ledger = job.ledger(due.partition)
    job.state_location.make_private()
    try:
        with lease.held(ledger / "late", f"freshness-{prefect.runtime.flow_run.id}"):
            _notify_once(job, due, entry, ledger / "late.json")
    except lease.PartitionBusy:
        log.info("%s/%s is late, and another check sends the notification", job.name, due.partition)


def _notify_once(job: Job, due: Deadline, entry: PartitionStatus, file: Location) -> None:
    """Raise the event and send the notification, unless the record in `file` shows that they were sent."""
    deadline = due.deadline.astimezone(job.timezone)
    payload = {
        "job": job.name,
        "partition": due.partition,
        "deadline": deadline.isoformat(),
        "status": entry.status,
        "why": list(entry.why),
    }
    record = read_json(file) or {**payload, "raised_at": None, "notified_at": None}
    name = f"{job.name}/{due.partition}"
    if not record["raised_at"]:
        get_run_logger().warning("%s was not published by %s: %s", name, deadline, entry.status)
        resource = f"overnight.partition.{job.name}.{due.partition}"
        names = {"prefect.resource.id": resource, "prefect.resource.name": name}
        emit_event(EVENT, names, payload=payload, id=uuid.uuid5(uuid.NAMESPACE_URL, resource))  # a repeat has this id
        send_logs_and_events(FLUSH_SECONDS)
        record["raised_at"] = now()
        write_json(file, record)
    receivers = _receivers(job)
    if not receivers or record["notified_at"]:
        return
    sentence = f"Its deadline was {deadline:%Y-%m-%d %H:%M %Z}. It is {entry.status}. {'; '.join(entry.why)}"
    _send(receivers, Message(job.name, due.partition, "late", ("late",), harmless(sentence)), record, file)


def _receivers(job: Job) -> list[Receiver]:
    return [receiver for receiver in job.receivers if "late" in receiver.on]


def _send(receivers: list[Receiver], message: Message, record: dict[str, Any], file: Location) -> None:
    """Send the message to each receiver that has not taken it, and record it. Raise the errors together at the end."""
    times = record.setdefault("notified", {})
    problems = []
    for receiver in receivers:
        if receiver.name not in times:
            try:
                send(receiver, message)
            except OvernightError as error:
                problems.append(str(error))
                continue
            times[receiver.name] = now()
            write_json(file, record)
    if problems:
        raise NotificationFailed(
            f"{'; '.join(problems)}. The next check of the partition, or the check at the next deadline, sends it "
            "again, for a week."
        )
    record["notified_at"] = now()
    write_json(file, record)
