"""What a process of the simulation runs: a run, a forced run, a retry of quarantined rows, an undo, or a clean.

Each calls the functions of the product in the order of the flow, without Prefect and Ray. A further program is a
function of `Site` and the process's name, and a line in `PROGRAMS`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.flows.job.model import Job
from overnight.flows.ledger import undo as undoing
from overnight.flows.ledger.garbage_collection import collect_garbage
from overnight.flows.runs.attempt import Scope, fresh_receipt, opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import CheckFailed, RetryRefused
from overnight.tasks.ingest.listing.list_files import stream_inputs
from overnight.tasks.state import lease, row_ranges
from overnight.tasks.state.manifest import digest
from overnight.tasks.state.published_rows import settled_record, take_over, without_quarantined
from overnight.tasks.state.run import Run, published_files, read_json
from overnight.tasks.storage.location import Location
from overnight.tasks.write.publish.continued import leave_for_next, read_continued
from overnight.tasks.write.publish.publish import audit, prepared, publish, repair
from overnight.tasks.write.publish.undo import publish_earlier
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.task import published_already
from tests.contracts.crash_points.places import DAY, Place
from tests.contracts.sinks.publications import NO_ERRORS, columns_of, receipt_of, records_of, stage

ROWS_A_PART = 2
NEW_ROWS = 3
NOTHING_NEW = "published already"
NO_NOTICE: Any = SimpleNamespace(begin=lambda run: None, end=lambda run, record: None)


@dataclass
class Site:
    """The place in which the processes work. `rows` has what each generation publishes, by its name."""

    place: Place
    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (Location(self._inputs) / "a.csv").write_bytes(b"x\n1\n")

    @property
    def sink(self) -> Sink:
        return self.place.sink

    @property
    def _inputs(self) -> str:
        """The folder of the inputs, beside the root, because no schedule changes them."""
        return f"{self.place.root}-in" if self.place.partition == "all" else f"{self.place.root}-in/{DAY}"

    @functools.cached_property
    def job(self) -> Job:
        root = self.place.root
        sink = self.sink.model_dump()
        if "path" in sink:
            sink["path"] = f"{root}/out"
        source = {"kind": "csv", "path": self._inputs.replace(DAY, "{partition}")}
        return Job.model_validate({"name": "job", "source": source, "sink": sink, "state": f"{root}/out/_overnight"})

    @functools.cached_property
    def inputs(self) -> str:
        """The digest of the inputs, for receipts."""
        return digest(stream_inputs(self.job.source, self.place.partition))

    def run(self) -> Run:
        """An attempt of the process in turn."""
        run = describe_run(self.job, self.place.partition)
        return replace(run, sink=replace(run.state, template=f"{self.place.root}/out"))

    def rows_of(self, generation: str, kept: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The rows of a generation: those that it keeps, and others that no other generation publishes."""
        first = 10 * len(self.rows) + 1
        return self.rows.setdefault(generation, (*kept, *range(first, first + NEW_ROWS)))

    def publish_earlier(self, run: Run, sink: Sink, earlier: dict[str, Any], current: dict[str, Any]) -> Any:
        """Publish earlier rows again, as the undo does, and note which ones."""
        self.rows[run.generation] = self.rows[earlier["generation"]]
        return publish_earlier(run, sink, earlier, current)


@dataclass(frozen=True, kw_only=True)
class Retry(Scope):
    """A run of new rows that keeps those of the published generation `retried`."""

    site: Site
    retried: str

    def is_published(self, receipt: dict[str, Any]) -> bool:
        return bool(receipt.get("retried") == self.retried)

    def begin(self, run: Run) -> dict[str, Any]:
        receipt = read_json(run.ledger / "receipt.json") or {}
        if receipt.get("generation") != self.retried:
            raise RetryRefused("another run published it meanwhile")
        settled = settled_record(run, self.retried)
        assert settled is not None
        take_over(run, settled, without_quarantined(settled.ranges))
        self.site.rows_of(run.generation, self.site.rows[self.retried])
        return {"continues": self.retried, "current": "f", "replaced": [], "is_retry": True}


Program = Callable[[Site, str], Any]


def run_rows(site: Site, name: str) -> Any:
    """Resume the unfinished generation, or begin one, unless the partition is published."""
    run = site.run()
    if fresh_receipt(site.job, run):
        return NOTHING_NEW
    return _run(site, Scope(run), name)


def run_with_force(site: Site, name: str) -> Any:
    """Begin a new generation, whatever is there."""
    return _run(site, Scope(site.run()), name, force=True)


def run_of_then(site: Site, name: str) -> Any:
    """Publish with the settings of then, which have changed since."""
    return _run(site, Scope(replace(site.run(), fingerprint="then")), name)


def retry_quarantined(site: Site, name: str) -> Any:
    """Add rows to those of the published generation."""
    run = site.run()
    published = read_json(run.ledger / "receipt.json")
    if published is None or settled_record(run, published["generation"]) is None:
        raise RetryRefused("not published")
    if site.sink.lost(run, published_files(published), published["rows_out"]):
        raise RetryRefused("a file is gone")
    fingerprint = f"{run.fingerprint}-{published['generation']}"
    scope = Retry(replace(run, fingerprint=fingerprint), site=site, retried=published["generation"])
    return _run(site, scope, name)


def undo(site: Site, name: str) -> Any:
    """Publish the rows of the publication before the current one again."""
    return undoing.undo(site.job, site.place.partition)


def clean(site: Site, name: str) -> Any:
    return collect_garbage(site.job, keep_receipts=1, dry_run=False)


PROGRAMS: dict[str, Program] = {
    "run": run_rows, "force": run_with_force, "then": run_of_then, "retry": retry_quarantined, "undo": undo,
    "clean": clean,
}  # fmt: skip


def _run(site: Site, scope: Scope, name: str, force: bool = False) -> Any:
    with opened(site.job, scope, force, NO_NOTICE) as run:
        if receipt := published_already(run):
            return receipt
        site.rows_of(run.generation)
        try:
            return _write(site, run, name)
        except (CheckFailed, lease.LeaseLost):
            raise
        except Exception:  # the second try of the task `write`
            return _write(site, replace(run, attempt=f"{run.attempt}0"), name)


def _write(site: Site, run: Run, name: str) -> Any:
    """Stage what no part has, verify, and publish: the tasks `infer` and `write`."""
    sink = site.sink
    lease.check(run.ledger, run.token)
    repair(run, sink)
    receipt = read_json(run.ledger / "receipt.json")
    if receipt and receipt["generation"] == run.generation:
        return receipt
    numbers = site.rows[run.generation]
    _stage_rest(run, site.place.kind, list(numbers[-NEW_ROWS:]), len(numbers) - NEW_ROWS)
    records, merged = records_of(run)
    counts = pa.table({"unit": [0], "rows": [len(numbers)], "first_row": [0], "size": [1]})
    totals = audit(counts, merged, run)
    retry = read_continued(run)
    with prepared(run, sink, records, merged, retry.kept if retry else None) as ready:
        receipt = receipt_of(run, sink, ready) | {"fingerprint": run.fingerprint, "token": run.token}
        receipt |= {"rows_in": totals.rows, "rows_out": ready.rows, "settings": {}}
        receipt |= {"inputs": site.inputs, "process": name}
        if retry:
            receipt["retried"] = retry.record["continues"]
        leave_for_next(run, records, merged, ready, published_files(receipt))
        return publish(run, sink, ready, NO_ERRORS, receipt)


def _stage_rest(run: Run, kind: str, numbers: list[int], first: int) -> None:
    rows = first + np.arange(len(numbers))
    is_settled = row_ranges.inside(np.zeros(len(numbers), int), rows, records_of(run)[1])
    for start in range(0, len(numbers), ROWS_A_PART):
        end = min(start + ROWS_A_PART, len(numbers))
        if not is_settled[start:end].all():
            part = replace(run, attempt=f"{run.attempt}-{start}")
            stage(part, columns_of(kind, numbers[start:end]), first=first + start)
