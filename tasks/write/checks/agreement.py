"""Check that the staged rows agree with the published rows of the same partition, before they replace them.

Rows are found by `row_id`. Without published rows to compare with, the check passes, with a note.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.rows.agreement import agreement, hashes_of, predictions
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.column_statistics import Columns
from overnight.tasks.write.checks.settings import AgreementBound
from overnight.tasks.write.sink import Sink

ROWS_AT_ONCE = 2**16
SETTING = "checks.agreement"


@dataclass
class AgreementResult:
    """What was measured, for the receipt; a sentence for each failure, and notes."""

    measured: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def pass_with(self, reason: str) -> "AgreementResult":
        self.notes.append(f"{SETTING}: nothing to compare with, {reason}; the check passes.")
        return self


def compare_with_published(
    run: Run, bound: AgreementBound | None, sink: Sink, columns: Columns, files: Sequence[Location]
) -> AgreementResult:
    """Compare the rows in the staged `files`, which are Parquet, with the rows that the newest receipt describes."""
    result = AgreementResult()
    if bound is None or not columns:
        return result
    receipt = None if run.limit_rows else read_json(run.ledger / "receipt.json")
    if not receipt:
        return result.pass_with("a sample is not compared" if run.limit_rows else "no rows are published yet")
    names = [bound.column] if bound.column else predictions(columns)
    names = [name for name in names if name in columns]
    if reason := _not_comparable(names, columns, bound):
        result.failures += reason
        return result
    absent = [name for name in names if name not in (receipt.get("columns") or names)]
    if absent:
        return result.pass_with(f"the published rows have no {', '.join(absent)}")
    try:
        published_rows = hashes_of(sink.read(run.sink, receipt, ["row_id", *names]), names, as_text=names)
    except FileNotFoundError:
        return result.pass_with("the published files are gone")
    staged_rows = hashes_of(_rows_of(files, names), names, as_text=names)
    equal = agreement(staged_rows, published_rows)
    if equal.share is None:
        return result.pass_with("no row_id is among the published ones")
    result.measured = {"columns": names, "generation": receipt["generation"], "share": round(equal.share, 6)}
    result.measured |= {"rows": equal.rows, "agreeing": equal.agreeing}
    result.measured |= {"only_staged": equal.only_a, "only_published": equal.only_b}
    if equal.share < bound.at_least:
        result.failures.append(
            f"{SETTING}: expected at least {bound.at_least:.6g} of the rows to have the same {', '.join(names)} as the "
            f"published rows, found {equal.share:.6g} ({equal.agreeing:,} of {equal.rows:,} rows). Look at what "
            f"changed: overnight compare. If it is intended, lower at_least, or remove the check."
        )
    return result


def _not_comparable(names: list[str], columns: Columns, bound: AgreementBound) -> list[str]:
    """Return a sentence for each problem of the columns. `unknown_columns` reports a named one that does not exist."""
    if not names and not bound.column:
        return [f"{SETTING}: found no predicted_label. Name a column: column: C; the columns are {', '.join(columns)}."]
    problems = []
    for name in names:
        kind = str(columns[name]["type"])
        if "float" in kind or "double" in kind:
            problems.append(f"{SETTING}: values must be equal, and {name} is {kind}. Use checks.drift for numbers.")
    return problems


def _rows_of(files: Sequence[Location], names: Sequence[str]) -> Iterator[pa.Table]:
    for location in files:
        with location.open() as file:
            for batch in pq.ParquetFile(file).iter_batches(ROWS_AT_ONCE, columns=["row_id", *names]):
                yield pa.Table.from_batches([batch])
