"""The publish: the partition, its quarantine and its receipt change together, also if the process dies half-way.

First `publishing.json` says whose files are being prepared, then what is about to change. The lease is checked, the
sink switches to the new files, the receipt is put in its place, what is old is removed, and last `publishing.json`. A
run that finds one knows of a publish that was cut off: if the sink has switched it completes it, else it takes it back,
and the generation resumes from its staged parts.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from overnight.tasks.errors import CheckFailed, ContractError
from overnight.tasks.state import lease, staged_parts
from overnight.tasks.state.run import Run, published_files, read_json, write_json
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.write.merge.merge_parts import Prepared
from overnight.tasks.write.sink import Sink

PUBLISHING = "publishing.json"


@dataclass(frozen=True)
class Repaired:
    """A publish that had been cut off: its receipt where it was completed, None where it was taken back.

    flow_run: the id in Prefect of the run that had begun it.
    """

    generation: str
    receipt: dict[str, Any] | None
    flow_run: str = ""

    def __str__(self) -> str:
        done = "completed" if self.receipt else "took back"
        return f"{done} the publish of generation {self.generation}, which had been cut off"


@contextlib.contextmanager
def prepared(run: Run, sink: Sink, records: list[Record], merged: pa.Table) -> Iterator[Prepared]:
    """What `publish` can make visible while the body runs; removed if that is refused.

    Refused is what raises `CheckFailed` or `ContractError`, in the sink or in the body. Raises `LeaseLost` where a
    later run has taken over.
    """
    lease.check(run.ledger, run.token)
    write_json(run.ledger / PUBLISHING, _owner(run))
    try:
        yield sink.prepare(run, records, merged)
    except (CheckFailed, ContractError):
        _abort(run, sink)
        raise


def publish(run: Run, sink: Sink, ready: Prepared, errors: pa.Table, receipt: dict[str, Any]) -> dict[str, Any]:
    """Makes visible what was prepared; the receipt as it was written.

    Raises `LeaseLost`, with nothing changed, where a later run has taken over.
    """
    files = published_files(receipt)
    old = sorted(set(published_files(read_json(run.ledger / "receipt.json"))) - set(files))
    (run.home / "quarantine").write_bytes(staged_parts.parquet_bytes(errors, "zstd"))
    try:
        lease.check(run.ledger, run.token)
    except lease.LeaseLost:
        sink.discard(run)
        raise
    write_json(run.ledger / PUBLISHING, {**_owner(run), "receipt": receipt, "old": old})
    try:
        with translate_storage_errors("publish to", run.target):
            sink.commit(run, ready, old)
    finally:
        lease.check(run.ledger, run.token)  # who took over since has taken this back, or completes it
    return _complete(run, sink, receipt, old)


def repair(run: Run, sink: Sink) -> Repaired | None:
    """Completes or takes back a publish that was cut off; None if there is none. `run` holds the partition."""
    found = read_json(run.ledger / PUBLISHING)
    if found is None:
        return None
    cut_off = replace(run, generation=found["generation"], attempt=found["attempt"])
    receipt = found.get("receipt")
    if receipt and sink.is_committed(cut_off, published_files(receipt), found["old"]):
        completed = _complete(cut_off, sink, receipt, found["old"])
        return Repaired(cut_off.generation, completed, found.get("flow_run", ""))
    _abort(cut_off, sink)
    return Repaired(cut_off.generation, None, found.get("flow_run", ""))


def is_under_way(run: Run) -> bool:
    """Whether a publish of the partition has begun to commit, and has not tidied up yet or was cut off."""
    return "receipt" in (read_json(run.ledger / PUBLISHING) or {})


def _abort(run: Run, sink: Sink) -> None:
    sink.discard(run)
    (run.ledger / PUBLISHING).remove()


def _complete(run: Run, sink: Sink, receipt: dict[str, Any], old: list[str]) -> dict[str, Any]:
    """From the commit on: everything here may be done twice. The receipt as it was written."""
    receipt = receipt | sink.version(run)
    quarantine, newest = run.ledger / "quarantine", f"quarantine-{run.generation}.parquet"
    (quarantine / newest).write_bytes((run.home / "quarantine").read_bytes())
    write_json(run.ledger / "receipts" / f"{run.generation}.json", receipt)
    write_json(run.ledger / "receipt.json", receipt)
    for name in quarantine.names():
        if name.endswith(".parquet") and name != newest:
            (quarantine / name).remove()
    (run.ledger / "failure.json").remove()
    run.failure_quarantine.remove()  # of an attempt of this run that failed, too
    run.parts.remove()  # published: nothing will resume from them
    run.answers.remove()
    sink.finish(run, published_files(receipt), old)
    (run.ledger / PUBLISHING).remove()
    return receipt


def _owner(run: Run) -> dict[str, Any]:
    return {"generation": run.generation, "attempt": run.attempt, "flow_run": run.flow_run}
