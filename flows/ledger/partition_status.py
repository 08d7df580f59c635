"""The ledger: what became of each partition, read from the receipts beside the data. Prefect's history has no say.

    running    a run holds the partition
    failed     its latest attempt failed, or died; an older publish may be there all the same
    stale      published, but with other settings, model files, code or (looked at on request) inputs than there are
               now; or a run that was to replace it was given up
    published  by a receipt
    missing    neither

The first that holds is its status. What is published and not stale is what `overnight run` leaves as it is.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Literal

from overnight.flows.job.model import Job
from overnight.flows.ledger.reader import AT_ONCE, PartitionLedger, read_files
from overnight.flows.ledger.staleness import changed_inputs, changed_settings
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.partitions import parse_day, partitions_between, resolve_partition
from overnight.tasks.errors import JobError
from overnight.tasks.state.run import FORMAT_VERSION, Run

Status = Literal["published", "missing", "failed", "stale", "running"]
STATUSES: tuple[Status, ...] = ("published", "missing", "failed", "stale", "running")


@dataclass(frozen=True)
class PartitionStatus:
    """A partition: its status, why in sentences, its newest receipt and the failure of its latest attempt, if any.

    `begun`: a generation is there that is newer than what is published, and was not. `since`: when the run that runs
    began, or when the latest attempt failed or was last heard of; UTC, ISO 8601.
    """

    partition: str
    status: Status
    why: tuple[str, ...] = ()
    receipt: Mapping[str, Any] | None = None
    failure: Mapping[str, Any] | None = None
    begun: bool = False
    since: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As `--json` says it: the receipt's counts and times, null where there is none."""
        receipt, failure = self.receipt or {}, self.failure or {}
        counts = ("rows_in", "rows_out", "rows_filtered", "rows_quarantined", "seconds", "generation")
        return {
            "partition": self.partition,
            "status": self.status,
            "why": list(self.why),
            "since": self.since,
            "published_at": receipt.get("finished_at"),
            **{name: receipt.get(name) for name in counts},
            **{name: failure.get(name) for name in ("stage", "error_type", "error_message")},
        }


def read_ledger(
    job: Job,
    start: date | None = None,
    end: date | None = None,
    inputs: bool = False,
    tell: Callable[[int, int], None] = lambda done, total: None,
    now: datetime | None = None,
    newest: int | None = None,
) -> list[PartitionStatus]:
    """The partitions from `start` to `end`, by date; without them from the first that was ever run to the last that is
    due, and later ones that were run. `newest`: only so many of them.

    Days that the job's schedule leaves out are there only if they were run. `inputs`: also lists the inputs of what is
    published, and calls `tell` with how many are done and how many there are. Raises `JobError` where the job's own
    settings cannot be told or `start` and `end` are no range, `LedgerCorrupt` and `ServiceUnavailable`.
    """
    run = describe_run(job, "all")
    wanted = _partitions(job, run, start, end, now or datetime.now(UTC))[-newest if newest else None :]
    found = read_files(run.state, {replace(run, partition=partition).ledger.name for partition in wanted})
    entries = [_entry(replace(run, partition=partition), found) for partition in wanted]
    return _with_inputs(job, run, entries, tell) if inputs else entries


def _partitions(job: Job, run: Run, start: date | None, end: date | None, now: datetime) -> list[str]:
    if start and end and start > end:
        raise JobError(f"expected a start that is not after the end, found {start} and {end}.")
    if not job.is_dated:
        if given := start or end:
            raise JobError(
                f"the job {job.name} has no days, only the partition all: expected no start or end, found {given}."
            )
        return ["all"]
    known = {day for name in run.state.names() if (day := _day(name, run.partition_column))}
    due = parse_day(resolve_partition(job, None, None, now))
    first, last = start or min(known, default=due), end or max(due, start or due)
    there = {day for day in known if first <= day <= (end or day)}
    return sorted({*partitions_between(job, first, last), *(day.isoformat() for day in there)})


def _day(name: str, column: str) -> date | None:
    """The day whose ledger has this name, if any has."""
    try:
        return parse_day(name.removeprefix(f"{column}=")) if name.startswith(f"{column}=") else None
    except JobError:
        return None


def _entry(run: Run, ledgers: Mapping[str, PartitionLedger]) -> PartitionStatus:
    found = ledgers.get(run.ledger.name)
    if found is None:
        return PartitionStatus(run.partition, "missing")
    (receipt, stranger), (failure, _) = _own(run, found.receipt), _own(run, found.failure)
    begun = found.newest_generation > (receipt["generation"] if receipt else "")
    entry = PartitionStatus(run.partition, "published", (), receipt, failure, begun)

    def known(status: Status, *why: str, since: str | None = None) -> PartitionStatus:
        return replace(entry, status=status, why=why, since=since)

    holder = found.holder
    if holder and holder.is_alive:
        since = _moment(holder.owner) or holder.renewed_at
        return known("running", f"attempt {holder.owner} on {holder.host}", since=since)
    if holder and not (failure and failure["attempt"] >= holder.owner):
        why = f"attempt {holder.owner} died with its process on {holder.host}; the next run goes on where it was"
        return replace(known("failed", why, since=holder.renewed_at), failure=None)
    if failure:
        return known("failed", f"{failure['stage']}: {failure['error_message']}", since=failure["failed_at"])
    if found.is_publishing:
        return known("failed", "its publish was cut off; the next run completes it or takes it back")
    if receipt is None and stranger:
        return known("missing", f"the place is taken by the job {stranger}")
    if receipt is None:
        return known("missing", *(["begun and given up; what was staged is kept"] if begun else []))
    changed = changed_settings(receipt, run)
    if begun and _is_resumable(found, run):
        changed = (*changed, "a run that was to replace it was begun and given up; the next completes it")
    return known("stale", *changed) if changed else entry


def _own(run: Run, record: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
    """The record if it is this job's; else the name of the job that it belongs to, if there is one."""
    return (record, "") if not record or record["job"] == run.job else (None, record["job"])


def _is_resumable(found: PartitionLedger, run: Run) -> bool:
    """Whether the next run would take up a newer generation than the published one, as `unfinished_generation` says."""
    record = found.unpublished
    return record is not None and (record["fingerprint"], record["format_version"]) == (run.fingerprint, FORMAT_VERSION)


def _moment(attempt: str) -> str | None:
    """When an attempt began, which its name says."""
    try:
        return f"{datetime.strptime(attempt[:15], '%Y%m%dT%H%M%S').isoformat()}Z"
    except ValueError:
        return None


def _with_inputs(
    job: Job, run: Run, entries: list[PartitionStatus], tell: Callable[[int, int], None]
) -> list[PartitionStatus]:
    """The entries, those whose inputs changed since they were published as stale."""
    looked_at = [entry for entry in entries if entry.status in ("published", "stale")]
    tell(0, len(looked_at))
    changed: dict[str, tuple[str, ...]] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        whys = pool.map(lambda entry: changed_inputs(job, run, entry.partition, entry.receipt or {}), looked_at)
        for number, (entry, why) in enumerate(zip(looked_at, whys, strict=True), 1):
            changed[entry.partition] = why
            tell(number, len(looked_at))
    return [
        replace(entry, status="stale", why=(*entry.why, *changed[entry.partition]))
        if changed.get(entry.partition)
        else entry
        for entry in entries
    ]
