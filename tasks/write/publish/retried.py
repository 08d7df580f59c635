"""The publish of a retry: the rows that it keeps, and the keys that its receipt has in addition.

The record of a retry's generation (`generation.json`) names the published generation that it retries:

    retries      the name of that generation
    current      the fingerprint of the job with which the rows are retried
    ingredients  the ingredients of that fingerprint
    code         sentences about code that changed since the publish
    again, gone  the paths of inputs that were listed again, and of inputs that no longer exist
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from overnight.tasks.errors import CheckFailed
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges
from overnight.tasks.state.published_rows import (
    PublishedRows,
    leave_record,
    published_rows,
    settled_record,
    without_quarantined,
)
from overnight.tasks.state.row_ranges import Totals
from overnight.tasks.state.run import Run, published_files, read_json
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import Prepared, staged_schema


@dataclass(frozen=True)
class Retried:
    """The published generation that a run retries.

    `receipt` is its receipt, and `kept` are its published rows, which stay. `record` is the retry's own
    `generation.json`.
    """

    receipt: Mapping[str, Any]
    kept: PublishedRows
    record: Mapping[str, Any]


def read_retried(run: Run) -> Retried | None:
    """Return the generation whose quarantined rows the run tries again; None if the run is not such a retry."""
    record = read_json(run.home / "generation.json") or {}
    if "retries" not in record:
        return None
    receipt = read_json(run.ledger / "receipts" / f"{record['retries']}.json") or {}
    return Retried(receipt, published_rows(run, record["retries"], published_files(receipt)), record)


def refuse_other_columns(retried: Retried, ready: Prepared) -> None:
    """Raise `CheckFailed` if the retried rows `ready` have other columns or types than the published rows."""
    found = described(ready.schema)
    if found == retried.kept.schema:
        return
    known = retried.kept.schema
    names = [name for name in {**known, **found} if known.get(name) != found.get(name)]
    told = ", ".join(f"{name} ({known.get(name, 'no column')} -> {found.get(name, 'no column')})" for name in names)
    raise CheckFailed(
        f"expected the columns of the published rows, found others in the retried rows: {told}. "
        "Nothing was published. Run the whole partition with force."
    )


def described(schema: pa.Schema) -> dict[str, str]:
    """Return the columns of a schema, as column -> name of its Arrow type."""
    return {field.name: str(field.type) for field in schema}


def receipt_of_retry(run: Run, retried: Retried, totals: Totals, rows_out: int, finished_at: str) -> dict[str, Any]:
    """Return the keys that the receipt of a retry changes or adds.

    `totals` and `rows_out` are for the whole partition: the counts of source rows, and the number of published rows.
    `finished_at` is the time of the receipt in ISO 8601.
    """
    earlier, record = retried.receipt, retried.record
    settled = settled_record(run, record["retries"])
    before = without_quarantined(settled.ranges) if settled else row_ranges.RANGES.empty_table()
    written, filtered = (row_ranges.rows_in_state(before, state) for state in (blocks.LIVE, blocks.FILTERED))
    part = _part(run.generation, run.attempt, finished_at, totals.written - written, rows_out - retried.kept.rows)
    part["fingerprint"] = record["current"]
    if record["current"] != earlier["fingerprint"]:
        part["ingredients"] = record["ingredients"]
    return {
        "fingerprint": earlier["fingerprint"],  # most rows are of the earlier run
        "ingredients": earlier["ingredients"],
        "parts": [*parts_of(earlier), part],
        "retried": {
            "generation": record["retries"],
            "rows_quarantined_before": earlier["rows_quarantined"],
            "rows_in": totals.rows - written - filtered,
            "rows_written": totals.written - written,
            "rows_filtered": totals.filtered - filtered,
            "rows_quarantined": totals.quarantined,
            "code": record["code"],
            "files_again": record["again"],
            "files_gone": record["gone"],
        },
    }


def parts_of(receipt: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one dict for each run whose rows the receipt's partition contains.

    Each has the run's generation, attempt, time of the end, written and published rows, and fingerprint.
    """
    if "parts" in receipt:
        return list(receipt["parts"])
    names = ("generation", "attempt", "finished_at", "rows_written", "rows_out")
    return [{**_part(*(receipt[name] for name in names)), "fingerprint": receipt["fingerprint"]}]


def _part(generation: str, attempt: str, finished_at: str, rows_written: int, rows_out: int) -> dict[str, Any]:
    return {
        "generation": generation,
        "attempt": attempt,
        "finished_at": finished_at,
        "rows_written": rows_written,
        "rows_out": rows_out,
    }


def published_places(run: Run, retried: Retried | None) -> list[Location]:
    """Return the published Parquet files that a retry keeps, for the job's own check.

    The list is empty if `retried` is None, for a run that is not a retry.
    """
    return [run.sink / file for file in (retried.kept.files if retried else ()) if file.endswith(".parquet")]


def leave_for_retry(run: Run, records: list[Record], merged: pa.Table, ready: Prepared, files: list[str]) -> None:
    """Write the record with which a later run can retry only the quarantined rows.

    `records` are the footers of the staged parts, and `merged` has their ranges (`row_ranges.merge`). `ready` is the
    publish, and `files` are its files as paths below the sink.
    """
    rows = PublishedRows(tuple(files), ready.rows, described(ready.schema), ready.columns)
    left_out = sorted({name for record in records for name in record.left_out})
    leave_record(run, staged_schema(records), merged, rows, left_out)
