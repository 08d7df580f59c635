"""The publish of a retry: the rows that it keeps, and the keys that its receipt has in addition.

The record of a retry's generation (`generation.json`) has in `retries` the name of the published generation. `current`
and `ingredients` are the fingerprint of the job with which the rows are retried. `code` has sentences about changed
code; `again` and `gone` have the paths of inputs that were listed again, and of inputs that no longer exist.
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
from overnight.tasks.state.run import Run, is_of_all_rows, published_files, read_json
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import Prepared, staged_schema

PART_KEYS = ("generation", "attempt", "finished_at", "rows_written", "rows_out", "fingerprint")


@dataclass(frozen=True)
class Retried:
    """The receipt of the generation that a run retries, its rows that stay, and the retry's `generation.json`."""

    receipt: Mapping[str, Any]
    kept: PublishedRows
    record: Mapping[str, Any]


def read_retried(run: Run) -> Retried | None:
    """Return the generation whose quarantined rows the run tries again; None if the run is not such a retry."""
    record = read_json(run.home / "generation.json") or {}
    if is_of_all_rows(record):
        return None
    receipt = read_json(run.ledger / "receipts" / f"{record['retries']}.json") or {}
    return Retried(receipt, published_rows(run, record["retries"], published_files(receipt)), record)


def refuse_other_columns(retried: Retried, ready: Prepared) -> None:
    """Raise `CheckFailed` if the retried rows `ready` have other columns or types than the published rows."""
    before, now = retried.kept.schema, described(ready.schema)
    changes = []
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            changes.append(f"{name} ({before.get(name, 'no column')} -> {now.get(name, 'no column')})")
    if changes:
        raise CheckFailed(
            f"expected the columns of the published rows, found others in the retried rows: {', '.join(changes)}. "
            "Nothing was published. Run the whole partition with force."
        )


def described(schema: pa.Schema) -> dict[str, str]:
    """Return the columns of a schema, as column -> name of its Arrow type."""
    return {field.name: str(field.type) for field in schema}


def receipt_of_retry(run: Run, retried: Retried, totals: Totals, rows_out: int, finished_at: str) -> dict[str, Any]:
    """Return the keys that the receipt of a retry changes or adds.

    `totals` and `rows_out` are for the whole partition: the counts of source rows, and the number of published rows.
    """
    earlier, record = retried.receipt, retried.record
    footer, before = settled_record(run, record["retries"]), row_ranges.RANGES.empty_table()
    if footer:
        before = without_quarantined(footer.ranges)
    new_rows = totals.written - row_ranges.rows_in_state(before, blocks.LIVE)
    filter_count = totals.filtered - row_ranges.rows_in_state(before, blocks.FILTERED)
    values = (run.generation, run.attempt, finished_at, new_rows, rows_out - retried.kept.rows, record["current"])
    part: dict[str, Any] = dict(zip(PART_KEYS, values, strict=True))
    if record["current"] != earlier["fingerprint"]:
        part["ingredients"] = record["ingredients"]
    return {
        "fingerprint": earlier["fingerprint"],  # most rows are of the earlier run
        "ingredients": earlier["ingredients"],
        "parts": [*parts_of(earlier), part],
        "retried": {
            "generation": record["retries"],
            "rows_quarantined_before": earlier["rows_quarantined"],
            "rows_in": new_rows + filter_count + totals.quarantined,
            "rows_written": new_rows,
            "rows_filtered": filter_count,
            "rows_quarantined": totals.quarantined,
            "code": record["code"],
            "files_again": record["again"],
            "files_gone": record["gone"],
        },
    }


def parts_of(receipt: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a dict with `PART_KEYS` for each run whose rows the receipt's partition contains."""
    if "parts" in receipt:
        return list(receipt["parts"])
    return [{name: receipt[name] for name in PART_KEYS}]


def published_places(run: Run, retried: Retried | None) -> list[Location]:
    """Return the published Parquet files that a retry keeps, for the job's own check."""
    if retried is None:
        return []
    return [run.sink / file for file in retried.kept.files if file.endswith(".parquet")]


def leave_for_retry(run: Run, records: list[Record], merged: pa.Table, ready: Prepared, files: list[str]) -> None:
    """Write the record with which a later run can retry only the quarantined rows.

    `records` and `merged` are the footers and ranges of the staged parts. `files` are the files of the publish `ready`.
    """
    rows = PublishedRows(tuple(files), ready.rows, described(ready.schema), ready.columns)
    leave_record(run, staged_schema(records), merged, rows, columns_not_published(records))


def columns_not_published(records: list[Record]) -> list[str]:
    """Return the sorted names of the columns that the staged parts left out."""
    names = set[str]()
    for record in records:
        names.update(record.left_out)
    return sorted(names)
