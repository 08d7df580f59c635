"""`overnight clean`: remove files that no run and no reader needs. It needs neither Prefect's server nor Ray.

The files of all partitions are listed once. Cleaning takes a partition's lease, as a run does, so that no run begins in
the meantime, and lists its files again under the lease. It skips a partition that a run holds.
"""

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from overnight.flows.job.model import Job
from overnight.flows.runs.run import describe_run
from overnight.tasks.state import lease
from overnight.tasks.state.garbage import (
    GarbageItem,
    Sizes,
    list_sizes,
    removable,
    removable_kept,
    removable_prepared,
    removable_sample,
)
from overnight.tasks.state.publications import earlier_publications
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.write.kinds import Sink

KEEP_RECEIPTS = 30
SHOWN = ("partition", "what", "why", "files")


def collect_garbage(
    job: Job, keep_receipts: int = KEEP_RECEIPTS, older_than: int | None = None, dry_run: bool = True
) -> dict[str, Any]:
    """Remove the files of a job that no run and no reader needs. Return a report as JSON values.

    With `older_than`, also remove staged work that a run could resume, if its last attempt is that number of days old.
    """
    idle_since = f"{datetime.now(UTC) - timedelta(older_than):%Y%m%dT%H%M%S}" if older_than is not None else ""
    run = describe_run(job, "all")
    cleaning = _Cleaning(keep_receipts, idle_since, run.sink.names(), dry_run, job.sink)
    sample_run = describe_run(job, "all", limit_rows=1)  # any limit makes it a sample
    ledgers = _ledgers(run, sample_run)
    with ThreadPoolExecutor(16) as pool:
        partitions = list(pool.map(lambda ledger: cleaning.clean(*ledger), ledgers))
    items = list(chain.from_iterable(partition.items for partition in partitions))
    return {
        "job": job.name,
        "dry_run": dry_run,
        "removable" if dry_run else "removed": [
            {**{name: getattr(item, name) for name in SHOWN}, "bytes": item.size} for item in items
        ],
        "files": sum(item.files for item in items),
        "bytes": sum(item.size for item in items),
        "skipped": [{"partition": result.partition, "why": result.why} for result in partitions if result.why],
    }


@dataclass(frozen=True)
class CleanPartition:
    """A partition, its items that are removed (in a dry run, would be), and the reason to skip it or a part of it."""

    partition: str
    items: list[GarbageItem]
    why: str


@dataclass(frozen=True)
class _Cleaning:
    keep_receipts: int
    idle_since: str
    sink_names: list[str]
    dry_run: bool
    sink: Sink

    def clean(self, run: Run, files: Sizes) -> CleanPartition:
        items, reason = self._find(run, files)
        if items and self.dry_run and (holder := lease.holder(run.ledger)):
            reason = f"{holder} holds it, or died on another machine; with --yes, cleaning waits to find out"
            return CleanPartition(run.partition, [], reason)
        if self.dry_run or not items:
            return CleanPartition(run.partition, items, reason)
        removals: list[GarbageItem] = []
        try:
            with lease.held(run.ledger, f"clean-{run.attempt}") as token:
                items, reason = self._find(run, list_sizes(run.ledger))
                for item in items:
                    lease.check(run.ledger, token)
                    item.remove()
                    removals.append(item)
        except (lease.PartitionBusy, lease.LeaseLost) as error:
            reason = str(error)
        return CleanPartition(run.partition, removals, reason)

    def _find(self, run: Run, files: Sizes) -> tuple[list[GarbageItem], str]:
        """Return the items of a partition that cleaning may remove, or the reason to keep all of them."""
        receipt = read_json(run.ledger / "receipt.json") if "receipt.json" in files else None
        if "publishing.json" in files and not run.limit_rows:
            return [], "publishing was interrupted; the next run completes it or rolls it back"
        if receipt and receipt["job"] != run.job:
            return [], f"published by another job, {receipt['job']!r}"
        if run.limit_rows:
            return [*removable_sample(run, files), *removable_prepared(run, run.sink.names())], ""
        earlier = earlier_publications(run, receipt["generation"]) if receipt else []
        generations = {entry["generation"] for entry in earlier[: getattr(self.sink, "keep_publications", 0)]}
        items = removable(run, receipt, files, self.keep_receipts, self.idle_since, generations)
        items += removable_kept(run, self.sink.excess(run, earlier))
        return [*items, *removable_prepared(run, self.sink_names)], ""


def _ledgers(run: Run, of_samples: Run) -> Iterator[tuple[Run, Sizes]]:
    ledgers: dict[str, dict[str, int]] = defaultdict(dict)
    samples: dict[str, dict[str, int]] = defaultdict(dict)
    for path, size in list_sizes(run.state).items():
        name, _, file = path.partition("/")
        target = ledgers
        if name == "samples":
            name, _, file = file.partition("/")
            target = samples
        partition = _partition(name, run.partition_column)
        if partition and file:  # otherwise a link or a file has the name of a ledger
            target[partition][file] = size
    for owner, files in ((run, ledgers), (of_samples, samples)):
        for partition in sorted(files):
            yield replace(owner, partition=partition), files[partition]


def _partition(name: str, column: str) -> str:
    """Return the partition whose ledger has this name, or an empty string if the name is not a ledger's."""
    if name == "all":
        return name
    return name.removeprefix(f"{column}=") if name.startswith(f"{column}=") else ""
