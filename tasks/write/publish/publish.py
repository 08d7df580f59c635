"""Publish a partition: its rows, quarantine and receipt change together, even if the process dies half-way.

First `publishing.json` names the attempt that prepares files. Then the planned change is added to it, the sink switches
to the new files, and the receipt is written. Last, old files and `publishing.json` are removed. A run that finds
`publishing.json` completes the publish if the sink has switched; otherwise it rolls the publish back.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from overnight.tasks.errors import CheckFailed, ContractError
from overnight.tasks.memory.made_rows import tidy
from overnight.tasks.memory.settings import Memory
from overnight.tasks.state import fenced, lease, staged_parts
from overnight.tasks.state.manifest import read_units
from overnight.tasks.state.publications import earlier_publications
from overnight.tasks.state.published_rows import PublishedRows
from overnight.tasks.state.row_ranges import Totals, count
from overnight.tasks.state.run import RESUMED_FROM, Run, published_files, read_json, write_json
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.write.merge.merge_parts import Prepared
from overnight.tasks.write.publish.reused import keep_answers
from overnight.tasks.write.sink import Sink

PUBLISHING = "publishing.json"


@dataclass(frozen=True)
class Repaired:
    """The repair of an interrupted publish: its generation, and its receipt if it was completed.

    `flow_run` is the Prefect id of the run that had begun it; empty if unknown.
    """

    generation: str
    receipt: dict[str, Any] | None
    flow_run: str = ""

    def __str__(self) -> str:
        verb = "completed" if self.receipt else "took back"
        return f"{verb} the interrupted publish of generation {self.generation}"


def audit(counts: pa.Table, merged: pa.Table, run: Run) -> Totals:
    """Return the counts of a partition's source rows. Raise `CheckFailed` unless each row is settled exactly once.

    `counts` has `rows` and `first_row` of the manifest, and `merged` the ranges of the staged parts.
    """
    totals = count(counts, merged)
    for units, problem in ((totals.unsettled_units, "not settled"), (totals.doubled_units, "settled more than once")):
        if len(units):
            path = read_units(run.manifest, units[:1])["path"][0].as_py()
            raise CheckFailed(
                f"rows of {len(units)} units are {problem}, the first in {path}. Nothing was published. "
                f"The staged parts are kept in {run.parts}; run again to resume, or with force to start over."
            )
    return totals


@contextlib.contextmanager
def prepared(
    run: Run, sink: Sink, records: list[Record], merged: pa.Table, kept: PublishedRows | None = None
) -> Iterator[Prepared]:
    """Prepare the files of a publish, beside the published rows `kept`, and yield them to the body, which publishes.

    `CheckFailed` and `ContractError` remove the files. Raise `LeaseLost` if a later run has taken over.
    """
    with _preparing(run, sink):
        yield replace(sink.prepare(run, records, merged), kept=kept)


@contextlib.contextmanager
def recalled(run: Run, sink: Sink, receipt: Mapping[str, Any]) -> Iterator[Prepared]:
    """Prepare the rows of an earlier receipt like `prepared`. Raise `NotKept` if they are no longer there."""
    with _preparing(run, sink):
        yield sink.recall(run, receipt)


@contextlib.contextmanager
def _preparing(run: Run, sink: Sink) -> Iterator[None]:
    fenced.write_json(run, PUBLISHING, _owner(run))
    try:
        yield
    except (CheckFailed, ContractError):
        _abort(run, sink)
        raise


def publish(run: Run, sink: Sink, ready: Prepared, errors: pa.Table, receipt: dict[str, Any]) -> dict[str, Any]:
    """Make the files `ready` and the quarantine `errors` visible, and return the receipt as it was written.

    Raise `LeaseLost` if a later run has taken over. That run completes or rolls back a commit that had begun.
    """
    files = published_files(receipt)
    old = sorted(set(published_files(read_json(run.ledger / "receipt.json"))) - set(files))
    (run.home / "quarantine").write_bytes(staged_parts.parquet_bytes(errors, "zstd"))
    try:
        fenced.write_json(run, PUBLISHING, {**_owner(run), "receipt": receipt, "old": old})
    except lease.LeaseLost:
        sink.discard(run)
        raise
    try:
        with translate_storage_errors("publish to", run.target):
            sink.commit(run, ready, old)
    finally:
        lease.check(run.ledger, run.token)  # a run that has taken over since then rolls this back, or completes it
    return _complete(run, sink, receipt, old)


def repair(run: Run, sink: Sink) -> Repaired | None:
    """Complete or roll back an interrupted publish of the partition, whose lease `run` holds; None if there is none."""
    record = read_json(run.ledger / PUBLISHING)
    if record is None:
        return None
    run = replace(run, generation=record["generation"], attempt=record["attempt"])
    receipt = record.get("receipt")
    if receipt and sink.is_committed(run, published_files(receipt), record["old"]):
        receipt = _complete(run, sink, receipt, record["old"])
        return Repaired(run.generation, receipt, record.get("flow_run", ""))
    _abort(run, sink)
    return Repaired(run.generation, None, record.get("flow_run", ""))


def is_under_way(run: Run) -> bool:
    """Return True if a publish of the partition is under way, or was interrupted: the next run repairs it."""
    return (run.ledger / PUBLISHING).exists()


def _abort(run: Run, sink: Sink) -> None:
    sink.discard(run)
    fenced.remove(run, PUBLISHING)


def _complete(run: Run, sink: Sink, receipt: dict[str, Any], old: list[str]) -> dict[str, Any]:
    """Finish a publish from the commit on, and return the receipt as it was written. Every step may run twice."""
    receipt = receipt | sink.version(run)
    quarantine, newest = run.ledger / "quarantine", f"quarantine-{run.generation}.parquet"
    fenced.write(run, f"quarantine/{newest}", (run.home / "quarantine").read_bytes())
    write_json(run.ledger / "receipts" / f"{run.generation}.json", receipt)
    fenced.write_json(run, "receipt.json", receipt)
    names = quarantine.names()
    lease.check(run.ledger, run.token)  # so the names are not those of a later run
    for name in names:
        if name.endswith(".parquet") and name != newest:
            (quarantine / name).remove()
    (run.ledger / "failure.json").remove()
    run.failure_quarantine.remove()  # also that of a failed attempt of this run
    keep_answers(run, receipt)
    if memory := (receipt.get("settings") or {}).get("memory"):
        tidy(Memory(**memory), run.generation)
    for name in RESUMED_FROM:  # published: no run will resume from them
        (run.home / name).remove()
    files = published_files(receipt)
    sink.keep(run, files, _earlier(run))
    sink.finish(run, files, old)
    fenced.remove(run, PUBLISHING)
    return receipt


def _earlier(run: Run) -> Iterator[dict[str, Any]]:
    """Yield the receipts of earlier publishes, the newest first. Nothing is read for a sink that keeps none."""
    yield from earlier_publications(run, run.generation)


def _owner(run: Run) -> dict[str, Any]:
    return {"generation": run.generation, "attempt": run.attempt, "flow_run": run.flow_run}
