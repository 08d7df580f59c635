"""`overnight clean`: removes what no run and no reader needs any more. It needs neither Prefect's server nor Ray.

What is there is listed once for all partitions. A partition that is cleaned is held by a lease like a run's, so that no
run begins meanwhile, and is looked at again under it; one that a run holds is left alone.
"""

from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from flows.attempt import describe_run
from flows.job import Job
from tasks import lease
from tasks.removable import (
    Removable,
    Sizes,
    list_sizes,
    removable,
    removable_prepared,
    removable_sample,
    untouchable,
)
from tasks.run_directory import Run

KEEP_RECEIPTS = 30


def clean(
    job: Job, keep_receipts: int = KEEP_RECEIPTS, older_than: int | None = None, do: bool = False
) -> dict[str, Any]:
    """What can be removed of all partitions of a job, as JSON values; with `do` it is removed.

    `older_than`: also staging that a run could resume, if its last attempt began so many days ago. Raises `JobError`
    where the job's own settings cannot be told, for they decide what can be resumed.
    """
    idle_since = f"{datetime.now(UTC) - timedelta(older_than):%Y%m%dT%H%M%S}" if older_than is not None else ""
    job_run = describe_run(job, "all")
    sink_names = job_run.sink.names()

    def find(run: Run, files: Sizes) -> list[Removable]:
        if run.limit_rows:
            return removable_sample(run, files)
        return [*removable(run, files, keep_receipts, idle_since), *removable_prepared(run, sink_names)]

    def look(found: tuple[Run, Sizes]) -> tuple[Run, list[Removable], str]:
        run, files = found
        items = [] if (why := untouchable(run, files)) else find(run, files)
        if items and (holder := lease.holder(run.ledger)):
            return run, [], f"{holder} is at work on it"
        return run, items, why

    with ThreadPoolExecutor(16) as pool:
        looked = list(pool.map(look, _ledgers(job_run)))
    removed = [item for _, items, _ in looked for item in items]
    skipped = [(run.partition, why) for run, _, why in looked if why]
    if do:
        removed = []
        for run, items, _ in looked:
            if not items:
                continue
            try:
                with lease.held(run.ledger, f"clean-{run.attempt}") as token:
                    files = list_sizes(run.ledger)
                    for item in [] if untouchable(run, files) else find(run, files):
                        lease.check(run.ledger, token)
                        item.remove()
                        removed.append(item)
            except (lease.PartitionBusy, lease.LeaseLost) as error:
                skipped.append((run.partition, str(error)))
    return {
        "job": job.name,
        "dry_run": not do,
        "removed" if do else "removable": [_described(item) for item in removed],
        "files": sum(item.files for item in removed),
        "bytes": sum(item.size for item in removed),
        "skipped": [{"partition": partition, "why": why} for partition, why in skipped],
    }


def _ledgers(run: Run) -> Iterable[tuple[Run, Sizes]]:
    """A run and the files of its ledger for each partition there is, and for each of which there are samples."""
    ledgers: dict[str, dict[str, int]] = defaultdict(dict)
    samples: dict[str, dict[str, int]] = defaultdict(dict)
    for path, size in list_sizes(run.state).items():
        first, _, below = path.partition("/")
        kind, (name, _, rest) = (samples, below.partition("/")) if first == "samples" else (ledgers, (first, "", below))
        if partition := _partition(name, run.partition_column):
            kind[partition][rest] = size
    place = run.state / "samples"
    of_samples = replace(run, state=place, sink=place / "published", limit_rows=1)
    for partition in sorted(ledgers):
        yield replace(run, partition=partition), ledgers[partition]
    for partition in sorted(samples):
        yield replace(of_samples, partition=partition), samples[partition]


def _partition(name: str, column: str) -> str:
    """The partition whose ledger has this name; an empty string for what is no ledger."""
    return name if name == "all" else name.removeprefix(f"{column}=") if name.startswith(f"{column}=") else ""


def _described(item: Removable) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ("partition", "what", "why", "files")} | {"bytes": item.size}
