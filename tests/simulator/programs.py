"""What a process of the simulation runs: a run, a forced run, a retry of quarantined rows, an undo, or a clean.

Each calls the functions of the product in the order of the flow, without Prefect and Ray. A further program is a
function of `Site` and the process's name, and a line in `PROGRAMS`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.flows.job.model import Job
from overnight.flows.ledger.garbage_collection import collect_garbage
from overnight.flows.runs.run import describe_run, refuse_foreign_files, refuse_other_job
from overnight.tasks.errors import CheckFailed, RetryRefused
from overnight.tasks.state import lease, row_ranges
from overnight.tasks.state.publications import publications
from overnight.tasks.state.published_rows import settled_record, take_over, without_quarantined
from overnight.tasks.state.run import FORMAT_VERSION, Run, published_files, read_json, unfinished_generation, write_json
from overnight.tasks.write.publish.continued import leave_for_next, read_continued
from overnight.tasks.write.publish.publish import audit, is_under_way, prepared, publish, repair
from overnight.tasks.write.publish.undo import publish_earlier
from overnight.tasks.write.sink import Sink
from tests.contracts.crash_points.places import Place
from tests.contracts.sinks.publications import NO_ERRORS, columns_of, receipt_of, records_of, stage

ROWS_A_PART = 2
PROCESSES = ("old", "A", "B", "C", "next", "last")
NEW_ROWS = 3
NOTHING_NEW = "published already"


@dataclass
class Site:
    """The place in which the processes work. `rows` has what each generation publishes, by its name."""

    place: Place
    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def sink(self) -> Sink:
        return self.place.sink

    def job(self) -> Job:
        root = self.place.root
        sink = self.sink.model_dump()
        if "path" in sink:
            sink["path"] = f"{root}/out"
        source = {"kind": "csv", "path": f"{root}/in/{{partition}}" if self.place.partition != "all" else f"{root}/in"}
        return Job.model_validate({"name": "job", "source": source, "sink": sink, "state": f"{root}/out/_overnight"})

    def run(self, name: str) -> Run:
        """An attempt of the process. Names sort by the start of their processes."""
        number = PROCESSES.index(name)
        run = describe_run(self.job(), self.place.partition)
        sink = replace(run.state, template=f"{self.place.root}/out")
        if name == "old":
            run = replace(run, fingerprint="of other settings")
        return replace(run, attempt=f"20260102T00000{number}-{number:06d}", sink=sink, flow_run=name)


Program = Callable[[Site, str], Any]


def run_rows(site: Site, name: str) -> Any:
    """Resume the unfinished generation, or begin one, unless the partition is published."""
    run = site.run(name)
    is_under_way(run)  # as the flow looks before it takes the lease
    return _run(site, run)


def run_with_force(site: Site, name: str) -> Any:
    """Begin a new generation, whatever is there."""
    return _run(site, site.run(name), force=True)


def retry_quarantined(site: Site, name: str) -> Any:
    """Add rows to those of the published generation."""
    run = site.run(name)
    published = read_json(run.ledger / "receipt.json")
    if published is None or settled_record(run, published["generation"]) is None:
        raise RetryRefused("not published")
    if site.sink.lost(run, published_files(published), published["rows_out"]):
        raise RetryRefused("a file is gone")
    fingerprint = f"{run.fingerprint}-{published['generation']}"
    return _run(site, replace(run, fingerprint=fingerprint), retried=published["generation"])


def undo(site: Site, name: str) -> Any:
    """Publish the rows of the publication before the current one again."""
    run = site.run(name)
    with lease.held(run.ledger, run.attempt, run.flow_run) as token:
        run = replace(run, token=token, generation=f"g{run.attempt}")
        refuse_other_job(run)
        if repair(run, site.sink) is not None:
            raise CheckFailed("an interrupted publish was completed")
        refuse_foreign_files(run, site.sink)
        current = read_json(run.ledger / "receipt.json") or {}
        receipts = [each for each in publications(run.ledger, run.job) if each["generation"] < current["generation"]]
        earlier = max(receipts, key=lambda receipt: str(receipt["generation"]))
        site.rows[run.generation] = site.rows[earlier["generation"]]
        return publish_earlier(run, site.sink, earlier, current)


def clean(site: Site, name: str) -> Any:
    return collect_garbage(site.job(), keep_receipts=1, dry_run=False)


PROGRAMS: dict[str, Program] = {
    "run": run_rows, "force": run_with_force, "retry": retry_quarantined, "undo": undo, "clean": clean,
}  # fmt: skip


def _run(site: Site, run: Run, force: bool = False, retried: str = "") -> Any:
    with lease.held(run.ledger, run.attempt, run.flow_run) as token:
        run = replace(run, token=token)
        run.failure_quarantine.remove()
        refuse_other_job(run)
        repair(run, site.sink)
        refuse_foreign_files(run, site.sink)
        generation = unfinished_generation(run.ledger, run.fingerprint)
        published = read_json(run.ledger / "receipt.json") or {}
        if not generation and not force and _is_published(run, published, retried):
            return NOTHING_NEW
        if force or not generation:
            generation = _new_generation(site, run, published, retried)
        run = replace(run, generation=generation)
        site.rows.setdefault(generation, tuple((read_json(run.home / "rows.json") or {})["all"]))
        try:
            return _write(site, run)
        except (CheckFailed, lease.LeaseLost):
            raise
        except Exception:  # the second try of the task `write`
            return _write(site, replace(run, attempt=f"{run.attempt}0"))


def _is_published(run: Run, published: dict[str, Any], retried: str) -> bool:
    if retried:
        return bool(published.get("retried") == retried)
    return bool(published.get("fingerprint") == run.fingerprint)


def _new_generation(site: Site, run: Run, published: dict[str, Any], retried: str) -> str:
    """Begin a generation whose rows nobody else publishes, and return its name."""
    generation = f"g{run.attempt}"
    home = replace(run, generation=generation)
    first = 10 * PROCESSES.index(run.flow_run) + 1
    numbers = list(range(first, first + NEW_ROWS))
    record: dict[str, Any] = {"fingerprint": run.fingerprint, "format_version": FORMAT_VERSION}
    kept: tuple[int, ...] = ()
    if retried:
        if published.get("generation") != retried:
            raise RetryRefused("another run published it meanwhile")
        settled = settled_record(run, retried)
        assert settled is not None
        kept = site.rows[retried]
        take_over(home, settled, without_quarantined(settled.ranges))
        record |= {"continues": retried, "current": "f", "replaced": [], "is_retry": True}
    write_json(home.home / "rows.json", {"new": numbers, "kept": len(kept), "all": [*kept, *numbers]})
    write_json(home.home / "generation.json", record)
    return generation


def _write(site: Site, run: Run) -> Any:
    """Stage what no part has, verify, and publish: the tasks `infer` and `write`."""
    sink = site.sink
    lease.check(run.ledger, run.token)
    repair(run, sink)
    receipt = read_json(run.ledger / "receipt.json")
    if receipt and receipt["generation"] == run.generation:
        return receipt
    plan = read_json(run.home / "rows.json") or {}
    _stage_rest(run, site.place.kind, plan["new"], plan["kept"])
    records, merged = records_of(run)
    rows = len(plan["all"])
    counts = pa.table({"unit": [0], "rows": [rows], "first_row": [0], "size": [1]})
    totals = audit(counts, merged, run)
    retry = read_continued(run)
    with prepared(run, sink, records, merged, retry.kept if retry else None) as ready:
        receipt = receipt_of(run, sink, ready) | {"fingerprint": run.fingerprint, "token": run.token}
        receipt |= {"rows_in": totals.rows, "rows_out": ready.rows, "settings": {}}
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
