"""The plan of a backfill: the partitions in order, the reason for each, and estimates of rows and seconds.

A backfill resumes from its record, `<state>/backfills/<id>.json`. The record holds the request and the plan. The ledger
holds the results of the partitions.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal

from overnight.flows.job.loading import JobFile
from overnight.flows.job.model import Job
from overnight.flows.ledger.forecast import NEWEST, expected_rows, experience, run_cost, run_seconds, together
from overnight.flows.ledger.partition_status import PartitionStatus, Status, read_ledger
from overnight.flows.ledger.reader import earlier_receipts
from overnight.flows.ledger.staleness import UnlistedInputs, some
from overnight.flows.runs.continuation import with_plans
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.partitions import chosen, is_due, newest_number, partitions_between
from overnight.tasks.config.masking import masked
from overnight.tasks.config.periods import name_of
from overnight.tasks.engine.progress import Interval
from overnight.tasks.engine.progress_text import duration
from overnight.tasks.errors import JobError, first_line
from overnight.tasks.state.run import now, read_json, write_json
from overnight.tasks.storage.location import Location

Select = Literal["missing", "failed", "stale", "quarantined", "all"]
Order = Literal["newest", "oldest"]
DEFAULT_SELECT: tuple[Select, ...] = ("missing", "failed")
WHOLE: tuple[Status, ...] = ("missing", "failed", "stale")  # statuses whose partitions run as a whole


@dataclass(frozen=True)
class Step:
    """One partition of a backfill's plan, with a forecast from earlier receipts, if there are any."""

    entry: PartitionStatus  # when the plan was made
    force: bool  # run the partition although it is published
    rows: int | None
    time: Interval | None
    cost: float | None = None
    is_retry: bool = False  # run only its quarantined rows

    @property
    def partition(self) -> str:
        return self.entry.partition

    @property
    def seconds(self) -> float | None:
        return round(self.time.seconds, 1) if self.time else None

    @property
    def why(self) -> list[str]:
        """Return the reasons for the run, as sentences."""
        if self.is_retry:
            return [f"published with {self.rows:,} quarantined rows, which run again"]
        return [*self.entry.why] or ["published, and selected again" if self.force else "never run"]

    def as_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "status": self.entry.status,
            "why": self.why,
            "estimated_rows": self.rows,
            "estimated_seconds": self.seconds,
            "estimated_seconds_of_80_percent": [round(self.time.low, 1), round(self.time.high, 1)]
            if self.time
            else None,
            "estimated_cost": self.cost,
            **({"plan": self.entry.plan} if self.entry.plan else {}),
        }


@dataclass(frozen=True)
class Request:
    """What a backfill must run: the partitions from `start` to `end`, both included, whose status is in `select`.

    Partitions without a time have no `start` and `end`. `where` has conditions such as `region=eu`, and `budget` has
    limits such as `cost=40`.
    """

    id: str
    start: date | None
    end: date | None
    select: tuple[Select, ...] = DEFAULT_SELECT
    order: Order = "oldest"
    settings: tuple[str, ...] = ()
    reason: str = ""
    where: tuple[str, ...] = ()
    budget: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        """Return the range and the conditions as text."""
        return ", ".join([*([f"{self.start} to {self.end}"] if self.start else []), *self.where]) or "all values"

    @property
    def lists_inputs(self) -> bool:
        return bool({"stale", "all"} & set(self.select))

    def runs_whole(self, status: Status) -> bool:
        if "all" in self.select:
            return status in (*WHOLE, "published")
        return status in WHOLE and status in self.select

    def retries(self, entry: PartitionStatus) -> bool:
        """Return True if only the quarantined rows of a partition run."""
        if "quarantined" not in self.select or entry.status not in ("published", "stale"):
            return False
        return not self.runs_whole(entry.status) and bool((entry.receipt or {}).get("rows_quarantined"))


def planned(
    file: JobFile,
    backfill_id: str,
    start: date | None,
    end: date | None,
    select: Sequence[Select] = DEFAULT_SELECT,
    order: Order = "oldest",
    settings: Sequence[str] = (),
    reason: str = "",
    where: Sequence[str] = (),
    budget: Sequence[str] = (),
    is_resumed: bool = False,
    is_dry: bool = False,
) -> tuple[Job, Request, list[Step]]:
    """Return the job with its overrides, the request of the backfill, and the steps to run. Write no record.

    If `backfill_id` has a record, which it must if `is_resumed`, the request comes from it. `is_dry` adds the plans.
    """
    job = file.job(settings)
    if not job.is_dated:
        raise JobError(
            f"expected a job with {{partition}} in its source, found {job.name}, whose only partition is all. "
            "Use `overnight run` instead."
        )
    if record := read_record(job, backfill_id):
        request = _request_of(record)
        job = file.job(request.settings)
        return job, request, _remaining_steps(job, request, record)
    if is_resumed:
        raise JobError(
            f"resume: expected the id of a backfill of {job.name}, found {backfill_id}, which has no record."
        )
    if job.periods and job.periods.every and not (start and end):
        raise JobError("expected the first and the last day as start and end, or the id of a backfill to resume.")
    request = Request(
        backfill_id, start, end, tuple(select), order, tuple(settings), masked(reason), tuple(where), tuple(budget)
    )
    return job, request, make_plan(job, request, is_dry=is_dry or bool(budget))


def make_plan(job: Job, request: Request, now: datetime | None = None, is_dry: bool = False) -> list[Step]:
    """Return a step for each partition that the request selects, in its order."""
    now = now or datetime.now(UTC)
    entries = _entries(job, request, inputs=request.lists_inputs, now=now)
    return steps_of(job, request, entries, now, is_dry)


def _selected(job: Job, request: Request, entries: Sequence[PartitionStatus], now: datetime) -> list[PartitionStatus]:
    """Return the entries that the request selects and that are due, also ones that cannot run."""
    selection = []
    for entry in entries:
        is_retry = request.retries(entry) and not _is_of_other_settings(job, entry)
        if is_due(job, entry.partition, now) and (request.runs_whole(entry.status) or is_retry):
            selection.append(entry)
    return selection


def _is_of_other_settings(job: Job, entry: PartitionStatus) -> bool:
    """Return True if an undo published rows of other settings, with which the quarantined ones cannot run."""
    receipt = entry.receipt or {}
    return bool(receipt.get("undo")) and receipt["fingerprint"] != describe_run(job, entry.partition).fingerprint


def stuck_in(job: Job, request: Request, entries: Sequence[PartitionStatus], now: datetime) -> dict[str, str]:
    """Return the partitions that the request selects and that no run can begin, with the reasons."""
    stuck = {}
    for entry in _selected(job, request, entries, now):
        if reason := _obstacle(job, request, entry):
            stuck[entry.partition] = first_line(reason)
    return stuck


def _obstacle(job: Job, request: Request, entry: PartitionStatus) -> str:
    """Return why no run of a partition can begin: the job no longer has it, or its inputs cannot be listed.

    With `all`, the run of such inputs begins, and fails.
    """
    try:
        if job.partitions:
            job.partitions.checked(entry.partition)
    except JobError as error:
        return str(error)
    if "all" in request.select:
        return ""
    return next((reason for reason in entry.why if isinstance(reason, UnlistedInputs)), "")


def stuck_text(stuck: Mapping[str, str]) -> str:
    """Return which partitions cannot run and why the first of them cannot, as a phrase."""
    return f"cannot run, so it stays: {some(list(stuck))}. {next(iter(stuck.values()))}"


def steps_of(
    job: Job, request: Request, entries: list[PartitionStatus], now: datetime, is_dry: bool = False
) -> list[Step]:
    """Return a step for each entry that the request selects, that is due and that can run, in its order."""
    selection = [entry for entry in _selected(job, request, entries, now) if not _obstacle(job, request, entry)]
    return _steps(job, entries, with_plans(job, selection) if is_dry else selection, request)


def _remaining_steps(job: Job, request: Request, record: dict[str, Any]) -> list[Step]:
    """Return the steps that an earlier backfill left unfinished, without partitions that another run holds.

    A step is finished if the partition is published now, by that backfill or for the first time since it began.
    """
    statuses = {step["partition"]: step["status"] for step in record["partitions"]}
    entries = _entries(job, request)
    selection = []
    for entry in entries:
        if entry.partition not in statuses or entry.status == "running":
            continue
        is_from_backfill = bool(entry.receipt) and (entry.receipt or {}).get("backfill") == request.id
        is_new = statuses[entry.partition] not in ("published", "stale")
        if entry.status not in ("published", "stale") or not (is_from_backfill or is_new):
            selection.append(entry)
    return _steps(job, entries, selection, request)


def _entries(job: Job, request: Request, **options: Any) -> list[PartitionStatus]:
    return read_ledger(job, request.start, request.end, where=request.where, **options)


def _steps(job: Job, entries: list[PartitionStatus], selection: list[PartitionStatus], request: Request) -> list[Step]:
    """Return steps for the selected entries in order. Receipts of all `entries`, or of others, give the forecasts."""
    earlier = experience(entry.receipt for entry in entries if entry.receipt)
    if not len(earlier.timings):
        earlier = experience(earlier_receipts(job.state_location, job.sink.partition_column, job.name, NEWEST))
    steps = []
    for entry in sorted(selection, key=lambda entry: entry.partition, reverse=request.order == "newest"):
        is_retry = request.retries(entry)
        # the next run resumes an interrupted forced run
        force = entry.status == "published" and not entry.begun and not is_retry
        rows = (entry.receipt or {}).get("rows_quarantined" if is_retry else "rows_in")
        if entry.plan and not is_retry:
            rows_to_run = entry.plan["rows_to_run"]
            if rows_to_run is not None:  # 0 if only files are gone
                rows = rows_to_run
        likely_rows = expected_rows(earlier, None) if rows is None else rows
        time, cost = run_seconds(earlier, rows), run_cost(earlier, likely_rows)
        steps.append(Step(entry, force, likely_rows, time, cost, is_retry))
    return steps


def summary(steps: Sequence[Step]) -> str:
    """Return a line such as `7 partitions, about 1,400 rows and 3 h 30 min one after the other`, from the estimates."""
    count = f"{len(steps)} partition{'' if len(steps) == 1 else 's'}"
    time = together([step.time for step in steps if step.time])
    if time is None:
        return count
    rows = sum(step.rows or 0 for step in steps)
    scope = f"{duration(time.low)} to {duration(time.high)}"
    costs = [step.cost for step in steps if step.cost is not None]
    cost = f", cost {sum(costs):,.2f}" if costs else ""
    return f"{count}, about {rows:,} rows and {duration(time.seconds)} one after the other (80 %: {scope}){cost}"


def nothing_to_do(job: Job, request: Request, now: datetime | None = None) -> str:
    """Return a sentence that explains why a backfill has no steps, with the number of its partitions by status."""
    now = now or datetime.now(UTC)
    entries = _entries(job, request, inputs=True, now=now)
    stuck = stuck_in(job, request, entries, now)
    statuses = Counter(entry.status for entry in entries if entry.partition not in stuck)
    counts = [f"{count} {status}" for status, count in sorted(statuses.items())]
    numbers = ", ".join([*counts, *_to_come(job, request, now)]) or "none"
    selection = " or ".join(request.select)
    advice = ""
    if statuses["stale"] and not request.lists_inputs:
        advice = ". To run the stale ones, add stale to select"
    if stuck:
        advice += f"; {stuck_text(stuck).rstrip('.')}"
    return f"{job.name}: no partition from {request.scope} is {selection}; found {numbers}{advice}."


def left_out(job: Job, request: Request, steps: Sequence[Step], now: datetime | None = None) -> str:
    """Return how many partitions of the range are not among the steps, by status and with advice.

    Return an empty text if all are. This lists no inputs, so it counts a partition as stale only if the job changed.
    """
    partitions = {step.partition for step in steps}
    now = now or datetime.now(UTC)
    entries = _entries(job, request, now=now)
    stuck = stuck_in(job, request, entries, now)
    statuses = Counter[Status]()
    for entry in entries:
        if entry.partition not in {*partitions, *stuck} and is_due(job, entry.partition, now):
            statuses[entry.status] += 1
    advice: dict[Status, str] = {status: f" (add {status} to select)" for status in WHOLE}
    advice["running"] = " (other runs hold them)"
    counts = [f"{number} {status}{advice.get(status, '')}" for status, number in sorted(statuses.items())]
    return ", ".join([*counts, *_to_come(job, request, now), *([stuck_text(stuck)] if stuck else [])])


def _to_come(job: Job, request: Request, now: datetime) -> list[str]:
    """Return how many partitions are still to come at `now`, as a phrase; an empty list if none is."""
    number, periods = newest_number(job, now), job.periods
    if number is None or not (periods and periods.every and request.start and request.end):
        return []
    names = [name for name in partitions_between(job, request.start, request.end) if not is_due(job, name, now)]
    count = len(chosen(job.sink.partition_column, names, request.where)) if names else 0
    newest = name_of(periods.every, number)
    return [f"{count} to come (the newest {periods.every} that is due is {newest})"] if count else []


def entries_of(job: Job, request: Request, steps: Sequence[Step]) -> list[PartitionStatus]:
    if not steps:
        return []
    partitions = {step.partition for step in steps}
    return [entry for entry in _entries(job, request) if entry.partition in partitions]


def write_record(job: Job, request: Request, steps: Sequence[Step]) -> None:
    """Write the record of a backfill: its request and its plan, from which `--resume` continues."""
    partitions = [{"partition": step.partition, "status": step.entry.status, "force": step.force} for step in steps]
    record = {
        **vars(request),
        "start": request.start and request.start.isoformat(),
        "end": request.end and request.end.isoformat(),
        "job": job.name,
        "created_at": now(),
        "partitions": partitions,
    }
    write_json(_record(job, request.id), record)


def note_spent(job: Job, request: Request, spent: Mapping[str, float]) -> None:
    """Add to the record of a backfill what its runs have spent so far."""
    record = read_record(job, request.id) or {}
    write_json(_record(job, request.id), {**record, "spent": dict(spent)})


def read_record(job: Job, backfill: str) -> dict[str, Any] | None:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", backfill):
        raise JobError(f"backfill: expected an id such as 0f3c9d21, found {backfill!r}.")
    return read_json(_record(job, backfill))


def _request_of(record: dict[str, Any]) -> Request:
    return Request(
        id=record["id"],
        start=date.fromisoformat(record["start"]) if record["start"] else None,
        end=date.fromisoformat(record["end"]) if record["end"] else None,
        select=tuple(record["select"]),
        order=record["order"],
        settings=tuple(record["settings"]),
        reason=record["reason"],
        where=tuple(record.get("where", ())),
        budget=tuple(record.get("budget", ())),
    )


def _record(job: Job, backfill: str) -> Location:
    return job.state_location / "backfills" / f"{backfill}.json"
