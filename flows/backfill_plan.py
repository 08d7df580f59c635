"""The plan of a backfill: the partitions in order, the reason for each, and estimates of rows and seconds.

A backfill resumes from its record, `<state>/backfills/<id>.json`. The record holds the request and the plan. The ledger
holds the results of the partitions.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import Any, Literal

from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus, Status, read_ledger
from overnight.flows.schedule.partitions import check_range, newest_due, partitions_between
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import JobError
from overnight.tasks.state.run import now, read_json, write_json
from overnight.tasks.storage.location import Location

Select = Literal["missing", "failed", "stale", "quarantined", "all"]
Order = Literal["newest", "oldest"]
DEFAULT_SELECT: tuple[Select, ...] = ("missing", "failed")


@dataclass(frozen=True)
class Step:
    """One partition of a backfill's plan. `entry` is the status of the partition when the plan was made.

    `force` runs the partition although it is published. `is_retry` runs only its quarantined rows. `rows` and `seconds`
    estimate the rows to read and the duration, from earlier receipts. They are None without such receipts.
    """

    entry: PartitionStatus
    force: bool
    rows: int | None
    seconds: float | None
    is_retry: bool = False

    @property
    def partition(self) -> str:
        return self.entry.partition

    @property
    def why(self) -> list[str]:
        """Return the reasons for the run, as sentences."""
        if self.is_retry:
            return [f"published with {self.rows:,} quarantined rows, which run again"]
        return [*self.entry.why] or ["published, and selected again" if self.force else "never run"]

    def as_json(self) -> dict[str, Any]:
        """Return the step as JSON values, as `--dry-run --json` prints it."""
        return {
            "partition": self.partition,
            "status": self.entry.status,
            "why": self.why,
            "estimated_rows": self.rows,
            "estimated_seconds": self.seconds,
        }


@dataclass(frozen=True)
class Request:
    """What a backfill must run: the partitions from `start` to `end`, both included, whose status is in `select`.

    `order` names the day to begin with. `settings` are texts KEY=VALUE that override the job file in each run. `reason`
    is recorded in the receipts.
    """

    id: str
    start: date
    end: date
    select: tuple[Select, ...] = DEFAULT_SELECT
    order: Order = "oldest"
    settings: tuple[str, ...] = ()
    reason: str = ""


def request_of(record: dict[str, Any]) -> Request:
    """Return the request of a backfill from its record, as `read_record` returns it."""
    start, end = (date.fromisoformat(record[name]) for name in ("start", "end"))
    return Request(
        record["id"], start, end, tuple(record["select"]), record["order"], tuple(record["settings"]), record["reason"]
    )


def make_plan(
    job: Job,
    request: Request,
    tell: Callable[[int, int], None] = lambda done, total: None,
    now: datetime | None = None,
) -> list[Step]:
    """Return a step for each partition that the request selects, in its order.

    Skip partitions that another run holds, and days that are still to come at `now`, by default the current time.

    If the request selects `stale` or `all`, list the inputs of published partitions to see if they changed. Then `tell`
    gets the number of partitions whose inputs are listed so far, and their total.

    Raise `JobError` if the end is before the start. Raise `ServiceUnavailable` if the storage cannot be reached, and
    `LedgerCorrupt` if a file of the ledger cannot be read.
    """
    check_range(request.start, request.end)
    looks = {"stale", "all"} & set(request.select)
    now = now or datetime.now(UTC)
    entries = read_ledger(job, request.start, request.end, bool(looks), tell, now)
    due = newest_due(job, now).isoformat()
    chosen = [
        entry
        for entry in entries
        if entry.partition <= due and (entry.status in _statuses(request) or _is_retry(entry, request))
    ]
    return _ordered(entries, chosen, request)


def _to_come(job: Job, request: Request, now: datetime) -> str:
    """Return how many days of the request are still to come at `now`, as a phrase; an empty text if none is."""
    due = newest_due(job, now)
    days = partitions_between(job, max(request.start, due + timedelta(days=1)), request.end)
    return f"{len(days)} to come (the newest day that is due is {due})" if days else ""


def _statuses(request: Request) -> set[Status]:
    """Return the statuses whose partitions run as a whole."""
    wholes: tuple[Status, ...] = ("missing", "failed", "stale")
    return {*wholes, "published"} if "all" in request.select else {one for one in wholes if one in request.select}


def _is_retry(entry: PartitionStatus, request: Request) -> bool:
    """Return True if only the quarantined rows of a partition run."""
    is_there = entry.status in ("published", "stale") and entry.status not in _statuses(request)
    return "quarantined" in request.select and is_there and bool((entry.receipt or {}).get("rows_quarantined"))


def remaining_partitions(job: Job, request: Request, record: dict[str, Any]) -> list[Step]:
    """Return the steps that an earlier backfill left unfinished. `request` and `record` are those of that backfill.

    A step is finished if that backfill published the partition. It is also finished if the partition was not published
    when that backfill began, and is published now. Partitions that another run holds are left out.
    """
    planned = {step["partition"]: step for step in record["partitions"]}
    entries = read_ledger(job, request.start, request.end)

    def is_done(entry: PartitionStatus) -> bool:
        by_this = bool(entry.receipt) and (entry.receipt or {}).get("backfill") == request.id
        was_there = planned[entry.partition]["status"] in ("published", "stale")
        return entry.status in ("published", "stale") and (by_this or not was_there)

    left = [
        entry for entry in entries if entry.partition in planned and entry.status != "running" and not is_done(entry)
    ]
    return _ordered(entries, left, request)


def planned(
    file: JobFile,
    backfill_id: str,
    start: date | None,
    end: date | None,
    select: Sequence[Select] = DEFAULT_SELECT,
    order: Order = "oldest",
    settings: Sequence[str] = (),
    reason: str = "",
    is_resumed: bool = False,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Job, Request, list[Step]]:
    """Return the job with its overrides, the request of the backfill, and the steps to run. Write no record.

    A record is the file from which a backfill resumes. If `backfill_id` has one, resume that backfill: the request and
    its settings come from the record, and only unfinished partitions run. Otherwise plan a new backfill, which needs
    `start` and `end`. If `is_resumed`, the record must exist.

    A new backfill that selects `stale` or `all` lists inputs. It calls `tell` with the number of partitions whose
    inputs are listed so far, and their total.

    Raise `JobError` if the job has no dates, if the request is not valid, or if there is no record to resume. Raise
    `ServiceUnavailable` if the storage cannot be reached, and `LedgerCorrupt` if a file of the ledger cannot be read.
    """
    job = file.job(settings)
    if not job.is_dated:
        raise JobError(
            f"expected a job with {{partition}} in its source, found {job.name}, whose only partition is all. "
            "Use `overnight run` instead."
        )
    if record := read_record(job, backfill_id):
        request = request_of(record)
        job = file.job(request.settings)
        return job, request, remaining_partitions(job, request, record)
    if is_resumed:
        raise JobError(
            f"resume: expected the id of a backfill of {job.name}, found {backfill_id}, which has no record."
        )
    if not start or not end:
        raise JobError("expected the first and the last day as start and end, or the id of a backfill to resume.")
    request = Request(backfill_id, start, end, tuple(select), order, tuple(settings), masked(reason))
    return job, request, make_plan(job, request, tell)


def summary(steps: Sequence[Step]) -> str:
    """Return a line such as `7 partitions, about 1,400 rows and 3.5 hours one after the other`, from the estimates.

    If no step has an estimate of its seconds, return only the number of partitions.
    """
    rows = [step.rows for step in steps if step.rows is not None]
    seconds = sum(step.seconds for step in steps if step.seconds is not None)
    lasts = f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
    about = f", about {sum(rows):,} rows and {lasts} one after the other" if seconds else ""
    return f"{len(steps)} partition{'' if len(steps) == 1 else 's'}{about}"


def nothing_to_do(job: Job, request: Request, now: datetime | None = None) -> str:
    """Return a sentence that explains why a backfill has no steps, with the number of its partitions by status.

    This lists the inputs of published partitions, because only they show which partitions are stale.
    """
    now = now or datetime.now(UTC)
    statuses = Counter(entry.status for entry in read_ledger(job, request.start, request.end, True, now=now))
    counts = [f"{count} {status}" for status, count in sorted(statuses.items())]
    found = ", ".join(filter(None, [*counts, _to_come(job, request, now)])) or "none"
    wanted = " or ".join(request.select)
    advice = ""
    if statuses["stale"] and not {"stale", "all"} & set(request.select):
        advice = ". To run the stale ones, add stale to select"
    return f"{job.name}: no partition from {request.start} to {request.end} is {wanted}; found {found}{advice}."


def left_out(job: Job, request: Request, steps: Sequence[Step], now: datetime | None = None) -> str:
    """Return how many partitions of the range are not among the steps, by status and with advice.

    Return an empty text if all are. This lists no inputs, so it counts a partition as stale only if the job changed.
    """
    mine = {step.partition for step in steps}
    now = now or datetime.now(UTC)
    due = newest_due(job, now).isoformat()
    entries = read_ledger(job, request.start, request.end, now=now)
    found = Counter(entry.status for entry in entries if entry.partition not in mine and entry.partition <= due)
    advice: dict[Status, str] = {status: f" (add {status} to select)" for status in ("missing", "failed", "stale")}
    advice["running"] = " (other runs hold them)"
    counts = [f"{number} {status}{advice.get(status, '')}" for status, number in sorted(found.items())]
    return ", ".join(filter(None, [*counts, _to_come(job, request, now)]))


def entries_of(job: Job, request: Request, steps: Sequence[Step]) -> list[PartitionStatus]:
    """Return the current status of each partition of the steps, from the ledger."""
    mine = {step.partition for step in steps}
    return [entry for entry in read_ledger(job, request.start, request.end) if entry.partition in mine] if mine else []


def write_record(job: Job, request: Request, steps: Sequence[Step]) -> None:
    """Write the record of a backfill: its request and its plan, from which `--resume` continues."""
    asked = {**vars(request), "start": request.start.isoformat(), "end": request.end.isoformat()}
    partitions = [{"partition": step.partition, "status": step.entry.status, "force": step.force} for step in steps]
    write_json(_record(job, request.id), {**asked, "job": job.name, "created_at": now(), "partitions": partitions})


def read_record(job: Job, backfill: str) -> dict[str, Any] | None:
    """Return the record of the backfill with this id, or None if there is no record.

    Raise `JobError` for a text that is not an id: 1 to 64 letters, digits, `-` and `_`.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", backfill):
        raise JobError(f"backfill: expected an id such as 0f3c9d21, found {backfill!r}.")
    return read_json(_record(job, backfill))


def _record(job: Job, backfill: str) -> Location:
    return job.state_location / "backfills" / f"{backfill}.json"


def _ordered(entries: list[PartitionStatus], chosen: list[PartitionStatus], request: Request) -> list[Step]:
    """Return steps for the chosen entries in order. The receipts of all `entries` give the estimates."""
    receipts = [entry.receipt for entry in entries if entry.receipt and not entry.receipt["rows_resumed"]]
    rows = int(median(receipt["rows_in"] for receipt in receipts)) if receipts else None
    seconds = round(median(receipt["seconds"] for receipt in receipts), 1) if receipts else None
    steps = []
    for entry in sorted(chosen, key=lambda entry: entry.partition, reverse=request.order == "newest"):
        own = entry.receipt or {}
        is_retry = _is_retry(entry, request)
        # the next run resumes an interrupted forced run
        force = entry.status == "published" and not entry.begun and not is_retry
        about = own.get("rows_quarantined" if is_retry else "rows_in", rows)
        steps.append(Step(entry, force, about, own.get("seconds", seconds), is_retry))
    return steps
