"""The publish: the partition, its quarantine and its receipt change together, also if the process dies half-way.

First `publishing.json` says what is about to change. Then the lease is checked, the sink switches to the new files, the
receipt is put in its place, what is old is removed, and last `publishing.json`. A run that finds one knows of a publish
that was cut off: with all of its files in place it completes it, else it takes it back, and the generation resumes from
its staged parts.
"""

from typing import Any

import pyarrow as pa

from tasks import lease, staging
from tasks.run_directory import Run, published_files, read_json, write_json
from tasks.write.parquet import ParquetSink


def publish(run: Run, sink: ParquetSink, errors: pa.Table, receipt: dict[str, Any]) -> None:
    """Raises `LeaseLost`, with nothing changed, where a later run has taken over."""
    before = published_files(read_json(run.ledger / "receipt.json"))
    (run.home / "quarantine").write_bytes(staging.parquet_bytes(errors, "zstd"))
    lease.check(run.ledger, run.token)
    old = sorted(set(before) - set(receipt["files"]))
    write_json(run.ledger / "publishing.json", {"receipt": receipt, "old": old})
    sink.switch(run, _names(receipt))
    _complete(run, sink, receipt, old)


def repair(run: Run, sink: ParquetSink) -> str | None:
    """Completes or takes back a publish that was cut off; what was done, in words."""
    sink.discard_prepared(run)
    cut_off = read_json(run.ledger / "publishing.json")
    if cut_off is None:
        return None
    receipt, there = cut_off["receipt"], set(run.target.names())
    generation = receipt["generation"]
    if there.issuperset(_names(receipt)):
        _complete(run, sink, receipt, cut_off["old"])
        return f"completed the publish of generation {generation}, which had been cut off"
    for name in there.intersection(_names(receipt)):
        (run.target / name).remove()
    (run.ledger / "publishing.json").remove()
    return f"took back the publish of generation {generation}, which had been cut off"


def _complete(run: Run, sink: ParquetSink, receipt: dict[str, Any], old: list[str]) -> None:
    """From the switch on: everything here may be done twice."""
    generation, quarantine = receipt["generation"], run.ledger / "quarantine"
    home, newest = run.ledger / "generations" / generation, f"quarantine-{generation}.parquet"
    (quarantine / newest).write_bytes((home / "quarantine").read_bytes())
    write_json(run.ledger / "receipts" / f"{generation}.json", receipt)
    write_json(run.ledger / "receipt.json", receipt)
    sink.discard(run, old)
    for name in quarantine.names():
        if name.endswith(".parquet") and name != newest:
            (quarantine / name).remove()
    (run.ledger / "failure.json").remove()
    (home / "parts").remove()  # published: nothing will resume from them
    (run.ledger / "publishing.json").remove()


def _names(receipt: dict[str, Any]) -> list[str]:
    return [path.rsplit("/", 1)[-1] for path in published_files(receipt)]
