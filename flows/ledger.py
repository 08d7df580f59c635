"""The ledger: what became of each partition, read from the receipts beside the data. Prefect's history has no say.

    running    a run holds the partition
    failed     its latest attempt failed, or died; an older publish may be there all the same
    stale      published, but with other settings, model files, code or (looked at on request) inputs than there are now
    published  by a receipt
    missing    neither

The first that holds is its status. One listing and two small files a partition are read, many at a time.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Literal

from flows.attempt import describe_run
from flows.job import Job
from flows.partitions import parse_day, partitions_between, resolve_partition
from flows.staleness import changed_inputs, changed_settings
from tasks import lease
from tasks.errors import OvernightError
from tasks.run_directory import Run
from tasks.storage import Location

Status = Literal["published", "missing", "failed", "stale", "running"]
STATUSES: tuple[Status, ...] = ("published", "missing", "failed", "stale", "running")
AT_ONCE = 16
FEW = 100  # partitions, up to which each is listed by itself; more are listed together


@dataclass(frozen=True)
class Entry:
    """A partition: its status, why in sentences, its newest receipt and the failure of its latest attempt, if any.

    `begun`: a generation is there that is newer than what is published, and was not.
    """

    partition: str
    status: Status
    why: tuple[str, ...] = ()
    receipt: Mapping[str, Any] | None = None
    failure: Mapping[str, Any] | None = None
    begun: bool = False

    def as_json(self) -> dict[str, Any]:
        """As `--json` says it: the receipt's counts and times, null where there is none."""
        receipt = self.receipt or {}
        counts = ("rows_in", "rows_out", "rows_filtered", "rows_quarantined", "seconds", "generation")
        return {
            "partition": self.partition,
            "status": self.status,
            "why": list(self.why),
            "published_at": receipt.get("finished_at"),
            **{name: receipt.get(name) for name in counts},
            "stage": self.failure["stage"] if self.failure else None,
            "error_message": self.failure["error_message"] if self.failure else None,
        }


@dataclass(frozen=True)
class _Found:
    """What there is of a partition: names below its ledger, and the content of the small files."""

    names: frozenset[str]
    receipt: dict[str, Any] | None
    failure: dict[str, Any] | None
    holder: lease.Holder | None


def read_ledger(
    job: Job,
    start: date | None = None,
    end: date | None = None,
    inputs: bool = False,
    tell: Callable[[int, int], None] = lambda done, total: None,
    now: datetime | None = None,
) -> list[Entry]:
    """The partitions from `start` to `end`, or from the first that was ever run to the last that is due, by date.

    Days that the job's schedule leaves out are there only if they were run. `inputs`: also lists the inputs of what is
    published, and calls `tell` with how many are done and how many there are. Raises `JobError` where the job's own
    settings cannot be told, and `StorageFailed`.
    """
    run = describe_run(job, "all")
    if not job.is_dated:
        wanted, found = ["all"], _read(run, {"all"})
    else:
        known = {name for name in run.state.names() if _day(run, name)}
        days = sorted(name.removeprefix(f"{run.partition_column}=") for name in known)
        due = parse_day(resolve_partition(job, None, None, now or datetime.now(UTC)))
        start = start or (parse_day(days[0]) if days else due)
        end = end or max([due, *(parse_day(day) for day in days[-1:])])
        inside = [day for day in days if start.isoformat() <= day <= end.isoformat()]
        wanted = sorted({*partitions_between(job, start, end), *inside})
        found = _read(run, {f"{run.partition_column}={day}" for day in inside})
    entries = [_entry(replace(run, partition=partition), found) for partition in wanted]
    return _with_inputs(job, run, entries, tell) if inputs else entries


def _day(run: Run, name: str) -> bool:
    """Whether this is the name of a partition's ledger."""
    column, equals, day = name.partition("=")
    try:
        return bool(equals) and column == run.partition_column and bool(parse_day(day))
    except OvernightError:
        return False


def _read(run: Run, directories: set[str]) -> dict[str, _Found]:
    """What there is of these partitions, by the name of their ledger's directory."""
    names: dict[str, set[str]] = defaultdict(set)
    for directory, name in _listed(run.state, directories):
        names[directory].add(name)
    newest = {directory: max(filter(_is_lease, found), default="") for directory, found in names.items()}
    wanted = [
        f"{directory}/{name}"
        for directory, found in names.items()
        for name in ("receipt.json", "failure.json", newest[directory])
        if name in found
    ]
    contents = run.state.read_each(wanted)

    def content(directory: str, name: str) -> dict[str, Any] | None:
        found = contents.get(f"{directory}/{name}")
        return dict(json.loads(found)) if found else None

    return {
        directory: _Found(
            names=frozenset(found),
            receipt=content(directory, "receipt.json"),
            failure=content(directory, "failure.json"),
            holder=_holder(newest[directory], contents.get(f"{directory}/{newest[directory]}")),
        )
        for directory, found in names.items()
    }


def _listed(state: Location, directories: set[str]) -> Iterable[tuple[str, str]]:
    """(directory, path below it) of every file below these directories."""
    filesystem, root = state.open_filesystem()
    root = root.rstrip("/")
    if len(directories) > FEW:
        paths = filesystem.find(root)
    else:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            places = [f"{root}/{directory}" for directory in sorted(directories)]
            paths = [path for found in pool.map(filesystem.find, places) for path in found]
    for path in paths:
        directory, _, name = path[len(root) + 1 :].partition("/")
        if directory in directories:
            yield directory, name


def _is_lease(name: str) -> bool:
    folder, _, token = name.partition("/")
    return folder == "lease" and token.isdecimal()


def _holder(name: str, content: bytes | None) -> lease.Holder | None:
    found = lease.read_holder(int(name.partition("/")[2]), content) if content else None
    return None if found and found.owner.startswith("clean-") else found


def _entry(run: Run, ledger: Mapping[str, _Found]) -> Entry:
    found = ledger.get(run.ledger.name)
    if found is None:
        return Entry(run.partition, "missing")
    receipt, failure, holder = found.receipt, found.failure, found.holder
    if receipt and receipt["job"] != run.job:
        return Entry(run.partition, "missing", (f"the place is taken by the job {receipt['job']}",))
    generations = {name.split("/")[1] for name in found.names if name.startswith("generations/")}
    begun = max(generations, default="") > (receipt["generation"] if receipt else "")
    known = Entry(run.partition, "published", (), receipt, failure, begun)
    if holder and holder.is_alive:
        return replace(known, status="running", why=(f"attempt {holder.owner} on {holder.host}",))
    if failure:
        return replace(known, status="failed", why=(f"{failure['stage']}: {failure['error_message']}",))
    if holder and (receipt is None or holder.token > receipt.get("token", holder.token)):
        return replace(known, status="failed", why=(f"the process of attempt {holder.owner} died",))
    if receipt is None:
        return replace(known, status="missing", why=("begun and given up; what was staged is kept",) if begun else ())
    if why := changed_settings(receipt["ingredients"], run.ingredients):
        return replace(known, status="stale", why=why)
    return known


def _with_inputs(job: Job, run: Run, entries: list[Entry], tell: Callable[[int, int], None]) -> list[Entry]:
    """The entries, those whose inputs changed since they were published as stale."""
    looked_at = [entry for entry in entries if entry.status in ("published", "stale") and entry.receipt]
    changed: dict[str, tuple[str, ...]] = {}
    tell(0, len(looked_at))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        whys = pool.map(lambda entry: changed_inputs(job, run, entry.partition, entry.receipt or {}), looked_at)
        for number, (entry, why) in enumerate(zip(looked_at, whys, strict=True), 1):
            if why:
                changed[entry.partition] = why
            tell(number, len(looked_at))
    return [
        replace(entry, status="stale", why=(*entry.why, *changed[entry.partition]))
        if entry.partition in changed
        else entry
        for entry in entries
    ]
