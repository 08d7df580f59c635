"""What a backfill is to do: which partitions, in which order and why, and what they will take; and its record, by which
it is resumed: `<state>/backfills/<id>.json`. What became of a partition is not in it: the ledger says that.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any, Literal

from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus, Status, read_ledger
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import JobError
from overnight.tasks.state.run import now, read_json, write_json
from overnight.tasks.storage.location import Location

Select = Literal["missing", "failed", "stale", "all"]
Order = Literal["newest", "oldest"]
DEFAULT_SELECT: tuple[Select, ...] = ("missing", "failed")


@dataclass(frozen=True)
class Step:
    """A partition to run. `force`: it is published and runs all the same. Estimates are None where nothing is known."""

    entry: PartitionStatus
    force: bool
    rows: int | None
    seconds: float | None

    @property
    def partition(self) -> str:
        return self.entry.partition

    @property
    def why(self) -> list[str]:
        return [*self.entry.why] or ["published, and asked for again" if self.force else "never run"]

    def as_json(self) -> dict[str, Any]:
        """As `--dry-run --json` and the plan's artifact say it."""
        return {
            "partition": self.partition,
            "status": self.entry.status,
            "why": self.why,
            "estimated_rows": self.rows,
            "estimated_seconds": self.seconds,
        }


@dataclass(frozen=True)
class Request:
    """What was asked for. `settings` override the job file's, as KEY=VALUE, in every run of the backfill."""

    id: str
    start: date
    end: date
    select: tuple[Select, ...] = DEFAULT_SELECT
    order: Order = "oldest"
    settings: tuple[str, ...] = ()
    reason: str = ""


def request_of(record: dict[str, Any]) -> Request:
    """The request that `write_record` wrote."""
    start, end = (date.fromisoformat(record[name]) for name in ("start", "end"))
    return Request(
        record["id"], start, end, tuple(record["select"]), record["order"], tuple(record["settings"]), record["reason"]
    )


def make_plan(job: Job, request: Request, tell: Callable[[int, int], None] = lambda done, total: None) -> list[Step]:
    """The steps, in order. A partition that another run holds is left to that run.

    Looks at the inputs where stale partitions are asked for, and calls `tell` with how many are done and how many there
    are. Raises `JobError` and `ServiceUnavailable`.
    """
    if request.end < request.start:
        raise JobError(f"expected a last day not before the first, found {request.start} to {request.end}.")
    looks = {"stale", "all"} & set(request.select)
    entries = read_ledger(job, request.start, request.end, bool(looks), tell)
    statuses: set[Status] = {"missing", "failed", "stale", "published"} if "all" in request.select else set()
    statuses |= {status for status in request.select if status != "all"}
    chosen = [entry for entry in entries if entry.status in statuses]
    return _ordered(entries, chosen, request)


def remaining_partitions(job: Job, request: Request, record: dict[str, Any]) -> list[Step]:
    """The steps of a backfill that began before which are not done: published since, where they were to be."""
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
    """The job with its overrides, what was asked for, and what of it is to be done.

    Where there is a record of `backfill_id` the request is that one's. Raises `JobError` and `ServiceUnavailable`.
    """
    job = file.job(settings)
    if not job.is_dated:
        raise JobError(f"the job {job.name} has only the partition all, for its source has no {{partition}}: run it.")
    if record := read_record(job, backfill_id):
        request = request_of(record)
        job = file.job(request.settings)
        return job, request, remaining_partitions(job, request, record)
    if is_resumed:
        raise JobError(f"resume: expected the id of a backfill of {job.name}, found {backfill_id}, which never began.")
    if not start or not end:
        raise JobError("expected the first and the last day as start and end, or the id of a backfill to resume.")
    request = Request(backfill_id, start, end, tuple(select), order, tuple(settings), masked(reason))
    return job, request, make_plan(job, request, tell)


def summary(steps: Sequence[Step]) -> str:
    """`7 partitions, about 1,400 rows and 3.5 hours one after the other`, as far as receipts tell."""
    rows = [step.rows for step in steps if step.rows is not None]
    seconds = sum(step.seconds for step in steps if step.seconds is not None)
    lasts = f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
    about = f", about {sum(rows):,} rows and {lasts} one after the other" if seconds else ""
    return f"{len(steps)} partition{'' if len(steps) == 1 else 's'}{about}"


def nothing_to_do(job: Job, request: Request) -> str:
    """Why a backfill without steps has none: what its partitions are. Looks at their inputs, for stale ones."""
    statuses = Counter(entry.status for entry in read_ledger(job, request.start, request.end, True))
    found = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items())) or "none"
    wanted = " or ".join(request.select)
    advice = ""
    if statuses["stale"] and not {"stale", "all"} & set(request.select):
        advice = ". --select stale runs those whose inputs changed"
    return f"{job.name}: of the partitions from {request.start} to {request.end} none is {wanted}: {found}{advice}."


def entries_of(job: Job, request: Request, steps: Sequence[Step]) -> list[PartitionStatus]:
    """What the ledger says of the steps' partitions by now."""
    mine = {step.partition for step in steps}
    return [entry for entry in read_ledger(job, request.start, request.end) if entry.partition in mine] if mine else []


def write_record(job: Job, request: Request, steps: Sequence[Step]) -> None:
    """Keeps what was asked for and what that came to."""
    asked = {**vars(request), "start": request.start.isoformat(), "end": request.end.isoformat()}
    partitions = [{"partition": step.partition, "status": step.entry.status, "force": step.force} for step in steps]
    write_json(_record(job, request.id), {**asked, "job": job.name, "created_at": now(), "partitions": partitions})


def read_record(job: Job, backfill: str) -> dict[str, Any] | None:
    """The record of a backfill, None where it never began. Raises `JobError` for what can be no id."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", backfill):
        raise JobError(f"backfill: expected an id such as 0f3c9d21, found {backfill!r}.")
    return read_json(_record(job, backfill))


def _record(job: Job, backfill: str) -> Location:
    return job.state_location / "backfills" / f"{backfill}.json"


def _ordered(entries: list[PartitionStatus], chosen: list[PartitionStatus], request: Request) -> list[Step]:
    """`entries`: all of the range, whose receipts tell what a partition takes."""
    receipts = [entry.receipt for entry in entries if entry.receipt and not entry.receipt["rows_resumed"]]
    rows = int(median(receipt["rows_in"] for receipt in receipts)) if receipts else None
    seconds = round(median(receipt["seconds"] for receipt in receipts), 1) if receipts else None
    steps = []
    for entry in sorted(chosen, key=lambda entry: entry.partition, reverse=request.order == "newest"):
        own = entry.receipt or {}
        force = entry.status == "published" and not entry.begun  # a forced run that was cut off is resumed
        steps.append(Step(entry, force, own.get("rows_in", rows), own.get("seconds", seconds)))
    return steps
