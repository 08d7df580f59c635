"""`overnight clean`: remove files that no run and no reader needs. It needs neither Prefect's server nor Ray.

The files of all partitions are listed once. Cleaning takes a partition's lease, as a run does, so that no run begins in
the meantime, and lists its files again under the lease. It skips a partition that a run holds.
"""

from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from overnight.flows.job.model import Job
from overnight.flows.runs.run import describe_run
from overnight.tasks.state import lease
from overnight.tasks.state.garbage import (
    GarbageItem,
    Sizes,
    list_sizes,
    reason_to_keep,
    removable,
    removable_prepared,
    removable_sample,
)
from overnight.tasks.state.run import Run, read_json

KEEP_RECEIPTS = 30


def collect_garbage(
    job: Job, keep_receipts: int = KEEP_RECEIPTS, older_than: int | None = None, dry_run: bool = True
) -> dict[str, Any]:
    """Remove the files of a job that no run and no reader needs. Return a report as JSON values.

    The report has the items as `removable` or `removed`, their total `files` and `bytes`, and the `skipped` partitions.

    Raise `JobError` if a variable or a model that the job names is missing, because they decide which work can resume.

    Args:
        keep_receipts: The number of the newest receipts of each partition that stay.
        older_than: Also remove staged work that a run could resume, if its last attempt began this number of days ago.
            None: keep such work.
        dry_run: Only report; remove no file.
    """
    idle_since = f"{datetime.now(UTC) - timedelta(older_than):%Y%m%dT%H%M%S}" if older_than is not None else ""
    job_run = describe_run(job, "all")
    sink_names = job_run.sink.names()

    def find(run: Run, files: Sizes) -> tuple[list[GarbageItem], str]:
        """Return the items of a partition that cleaning may remove, or the reason to keep all of them."""
        receipt = read_json(run.ledger / "receipt.json") if "receipt.json" in files else None
        if why := reason_to_keep(run, receipt, files):
            return [], why
        if run.limit_rows:
            return [*removable_sample(run, files), *removable_prepared(run, run.sink.names())], ""
        items = removable(run, receipt, files, keep_receipts, idle_since)
        return [*items, *removable_prepared(run, sink_names)], ""

    def handle(found: tuple[Run, Sizes]) -> tuple[str, list[GarbageItem], str]:
        """Return the partition, its items that are removed (with `dry_run`, would be), and the reason to skip it."""
        run, files = found
        items, why = find(run, files)
        if items and dry_run and (holder := lease.holder(run.ledger)):
            items, why = [], f"{holder} holds it, or died on another machine; with --yes, cleaning waits to find out"
        if dry_run or not items:
            return run.partition, items, why
        removed: list[GarbageItem] = []
        try:
            with lease.held(run.ledger, f"clean-{run.attempt}") as token:
                items, why = find(run, list_sizes(run.ledger))
                for item in items:
                    lease.check(run.ledger, token)
                    item.remove()
                    removed.append(item)
        except (lease.PartitionBusy, lease.LeaseLost) as error:
            why = str(error)
        return run.partition, removed, why

    with ThreadPoolExecutor(16) as pool:
        handled = list(pool.map(handle, _ledgers(job_run)))
    items = [item for _, found, _ in handled for item in found]
    return {
        "job": job.name,
        "dry_run": dry_run,
        "removable" if dry_run else "removed": [_described(item) for item in items],
        "files": sum(item.files for item in items),
        "bytes": sum(item.size for item in items),
        "skipped": [{"partition": partition, "why": why} for partition, _, why in handled if why],
    }


def _ledgers(run: Run) -> Iterable[tuple[Run, Sizes]]:
    """Yield a run and the files of its ledger for each partition, then for each partition with samples."""
    ledgers: dict[str, dict[str, int]] = defaultdict(dict)
    samples: dict[str, dict[str, int]] = defaultdict(dict)
    for path, size in list_sizes(run.state).items():
        first, _, below = path.partition("/")
        kind, (name, _, rest) = (samples, below.partition("/")) if first == "samples" else (ledgers, (first, "", below))
        partition = _partition(name, run.partition_column)
        if partition and rest:  # otherwise a link or a file has the name of a ledger
            kind[partition][rest] = size
    place = run.state / "samples"
    of_samples = replace(run, state=place, sink=place / "published", limit_rows=1)
    for partition in sorted(ledgers):
        yield replace(run, partition=partition), ledgers[partition]
    for partition in sorted(samples):
        yield replace(of_samples, partition=partition), samples[partition]


def _partition(name: str, column: str) -> str:
    """Return the partition whose ledger has this name, or an empty string if the name is not a ledger's."""
    return name if name == "all" else name.removeprefix(f"{column}=") if name.startswith(f"{column}=") else ""


def _described(item: GarbageItem) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ("partition", "what", "why", "files")} | {"bytes": item.size}
