"""The ledger: the status of each partition, read from the receipts beside the data. Prefect's history is not used.

`overnight run` does not run a partition that is published and not stale.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any, Literal

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.job.partitions import Partitions
from overnight.flows.ledger.reader import AT_ONCE, PartitionLedger, read_files
from overnight.flows.ledger.staleness import Reason, changed_inputs, changed_settings, undone, unknown_commits
from overnight.flows.ledger.upstreams import chain_of, changes_upstream
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.partitions import check_range, chosen, is_due, newest_due, partitions_between
from overnight.tasks.errors import JobError
from overnight.tasks.ingest.kinds import JobRows, Upstream
from overnight.tasks.state.publications import results_like
from overnight.tasks.state.run import FORMAT_VERSION, Run, is_of_all_rows
from overnight.tasks.storage.stores import use

Status = Literal["published", "missing", "failed", "stale", "running"]
# The first of these that holds is the status:
#
#    running    a run holds the partition
#    failed     its latest attempt failed or died; an older publish may still be there
#    stale      published, but the settings, model files, code or (checked on request) inputs have changed since;
#               or (checked on request) it reads or follows a stale partition of another job;
#               or a run that should replace it was abandoned
#    published  it has a receipt
#    missing    the partition has no other status
STATUSES: tuple[Status, ...] = ("published", "missing", "failed", "stale", "running")


@dataclass(frozen=True)
class PartitionStatus:
    """The status of a partition, with the reasons, its newest receipt, and the failure of its latest attempt.

    `since` is the time in UTC at which the run began, or the latest attempt failed or last renewed its lease.
    """

    partition: str
    status: Status
    why: tuple[str, ...] = ()
    receipt: Mapping[str, Any] | None = None
    failure: Mapping[str, Any] | None = None
    begun: bool = False  # the newest generation is not published, and runs all rows
    since: str | None = None
    plan: Mapping[str, Any] | None = None  # of the next run of a stale one, for `--plan`

    def as_json(self) -> dict[str, Any]:
        """Return the status as `--json` prints it. Values of the receipt or the failure are null if there is none."""
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
            **({"plan": self.plan} if self.plan else {}),
        }


def read_ledger(
    job: Job,
    start: date | None = None,
    end: date | None = None,
    inputs: bool = False,
    tell: Callable[[int, int], None] = lambda done, total: None,
    now: datetime | None = None,
    newest: int | None = None,
    where: Sequence[str] = (),
    only: Collection[str] | None = None,
) -> list[PartitionStatus]:
    """Return the status of the partitions in `only`, or of a range: by default from the first to the last that is due.

    `inputs` lists inputs, and `tell` gets the number so far and the total. `where` has conditions such as `region=eu`.
    """
    run = describe_run(job, "all")
    partitions = sorted(only or ()) or _partitions(job, run, start, end, now or datetime.now(UTC))
    partitions = chosen(run.partition_column, partitions, where)[-(newest or 0) :]
    runs = [replace(run, partition=partition) for partition in partitions]
    ledgers = read_files(run.state, {run.ledger.name for run in runs})
    entries = [_entry(run, ledgers.get(run.ledger.name)) for run in runs]
    return _with_inputs(job, run, entries, tell) if inputs else entries


def _partitions(job: Job, run: Run, start: date | None, end: date | None, now: datetime) -> list[str]:
    if start and end:
        check_range(start, end)
    periods = job.periods
    if periods is None:
        if start or end:
            raise JobError(
                f"expected no start or end, because the only partition of the job {job.name} is all; "
                f"found {start or end}."
            )
        return ["all"]
    names = _known(periods, run)
    due = newest_due(job, now)
    if due is None:
        if start or end:
            raise JobError(f"expected no start or end, because partitions have no time; found {start or end}.")
        return sorted({*periods.named(range(0)), *names})
    days = [day for day in map(periods.first_day, names) if day]
    first, last = start or periods.begins_on or min(days, default=due), min(end or due, due)
    due_names = [name for name in partitions_between(job, first, last) if is_due(job, name, now)]
    return sorted({*due_names, *(name for name in names if periods.has_day_in(name, first, end))})


def _known(periods: Partitions, run: Run) -> list[str]:
    """Return the partitions that have a ledger."""
    prefix, names = f"{run.partition_column}=", []
    for name in run.state.names():
        if name.startswith(prefix):
            with contextlib.suppress(JobError):  # a folder of another's
                periods.number(name.removeprefix(prefix))
                names.append(name.removeprefix(prefix))
    return names


def _entry(run: Run, ledger: PartitionLedger | None) -> PartitionStatus:
    if ledger is None:
        return PartitionStatus(run.partition, "missing")
    entry = entry_of(run.partition, run.job, ledger)
    if entry.status != "published":
        return entry
    receipt = entry.receipt or {}
    changes = () if results_like(receipt, run) else changed_settings(receipt, run)
    record = ledger.unpublished or {}
    if entry.begun and (record.get("fingerprint"), record.get("format_version")) == (run.fingerprint, FORMAT_VERSION):
        sentence = "a run that should replace it was abandoned; the next run completes it"
        changes = (*changes, Reason(sentence, "abandoned"))
    if changes:
        return replace(entry, status="stale", why=changes)
    return replace(entry, why=(*undone(receipt, run), *unknown_commits(receipt, run)))


def entry_of(partition: str, job: str, ledger: PartitionLedger) -> PartitionStatus:
    """Return the status of a partition by its ledger alone. A partition that is stale counts as published."""
    receipt, failure = _own(job, ledger.receipt), _own(job, ledger.failure)
    is_newer = ledger.newest_generation > (receipt["generation"] if receipt else "")
    # a run of all rows does not resume the others
    has_attempt = is_newer and is_of_all_rows(ledger.unpublished or {})
    entry = PartitionStatus(partition, "published", (), receipt, failure, has_attempt)

    def as_status(status: Status, *why: str, since: str | None = None) -> PartitionStatus:
        return replace(entry, status=status, why=why, since=since)

    holder = ledger.holder
    if holder and holder.is_alive:
        since = _moment(holder.owner) or holder.renewed_at
        return as_status("running", f"attempt {holder.owner} on {holder.host}", since=since)
    if holder and not (failure and failure["attempt"] >= holder.owner):
        reason = f"the process of attempt {holder.owner} died on {holder.host}; the next run resumes its work"
        return replace(as_status("failed", reason, since=holder.renewed_at), failure=None)
    if failure:
        return as_status("failed", f"{failure['stage']}: {failure['error_message']}", since=failure["failed_at"])
    if ledger.is_publishing:
        return as_status("failed", "publishing was interrupted; the next run will complete it or roll it back")
    if receipt is None and ledger.receipt:
        owner = ledger.receipt["job"]
        return as_status("missing", f"the sink holds results of the job {owner}; give each job a sink of its own")
    if receipt is None:
        return as_status("missing", *["a run began and was abandoned; its staged parts are kept"] * has_attempt)
    return entry


def _own(job: str, record: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the record if it belongs to this job."""
    return record if record and record["job"] == job else None


def _moment(attempt: str) -> str | None:
    """Return the time at which an attempt began, from its name."""
    try:
        return f"{datetime.strptime(attempt[:15], '%Y%m%dT%H%M%S').isoformat()}Z"
    except ValueError:
        return None


def _with_inputs(
    job: Job, run: Run, entries: list[PartitionStatus], tell: Callable[[int, int], None]
) -> list[PartitionStatus]:
    """Return the entries. Those of partitions whose inputs changed since their publish have the status stale."""
    with_rows = [entry for entry in entries if entry.status in ("published", "stale")]
    tell(0, len(with_rows))
    upstream = _stale_partitions_needed(job, [entry.partition for entry in with_rows])
    reasons: dict[str, list[str]] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        changes = pool.map(lambda entry: changed_inputs(job, run, entry.partition, entry.receipt or {}), with_rows)
        for number, (entry, sentences) in enumerate(zip(with_rows, changes, strict=True), 1):
            newer = changes_upstream(job, entry.partition, entry.receipt or {})
            reasons[entry.partition] = [*sentences, *newer, *upstream[entry.partition]]
            tell(number, len(with_rows))
    result = []
    for entry in entries:
        if reasons.get(entry.partition):
            result.append(replace(entry, status="stale", why=(*entry.why, *reasons[entry.partition])))
        else:
            result.append(entry)
    return result


def _stale_partitions_needed(job: Job, partitions: list[str]) -> dict[str, list[str]]:
    """Return, for each of `partitions`, a sentence on each stale partition of another job that it reads or follows."""
    sentences: dict[str, list[str]] = {partition: [] for partition in partitions}
    needs: list[tuple[str, Upstream, dict[str, list[str]]]] = []
    if isinstance(job.source, JobRows):
        upstream = job.source.upstream
        needs.append(("reads", upstream, {partition: upstream.names(partition) for partition in partitions}))
    for after in job.run_after:
        needs.append(("follows", after.upstream, {name: after.partitions(name) for name in partitions}))
    for verb, upstream, names_of in needs:
        stale = _stale(job, upstream, set(chain.from_iterable(names_of.values())))
        for partition, names in names_of.items():
            for name in names or stale:
                if name in stale:
                    reasons = "; ".join(stale[name])
                    sentence = f"{verb} {upstream.name}/{name}, which is stale: {reasons}"
                    sentences[partition].append(Reason(sentence, "upstream"))
    return sentences


def _stale(job: Job, upstream: Upstream, partitions: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the stale ones among the partitions of a job that `job` needs, or among all of them, with the reasons."""
    upstream_job = load_job(upstream.job_file)
    use(job.storage)  # which has the other job's places, too
    entries = read_ledger(upstream_job, inputs=True, only=partitions or None)
    return {entry.partition: entry.why for entry in entries if entry.status == "stale"}


def chain_status(job: Job, entries: Sequence[PartitionStatus]) -> dict[str, dict[str, int]]:
    """Return the number of partitions by status of each job that `job` needs for `entries`, the first to run first."""
    periods = job.periods
    days = [day for entry in entries if periods and (day := periods.first_day(entry.partition))]
    chain: dict[str, dict[str, int]] = {}
    for member in chain_of(job, min(days, default=None), max(days, default=None)):
        chain_job = load_job(member.job_file)
        numbers = Counter(entry.status for entry in read_ledger(chain_job, member.start, member.end))
        chain[chain_job.name] = {str(status): number for status, number in numbers.items()}
    use(job.storage)
    return chain
