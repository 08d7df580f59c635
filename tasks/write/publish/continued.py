"""The publish of a run that continues a published generation: the rows that it keeps, and further keys of its receipt.

The record of such a generation (`generation.json`) has in `continues` the name of the published generation. `current`
and `ingredients` are the fingerprint of the job that the new rows ran with. `code` has sentences about changed code,
`again` the paths of inputs that were listed again, `gone` those of inputs that no longer exist, `why` what changed, and
`replaced` the published files that other files replace. `is_retry` is true if only quarantined rows should run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import CheckFailed, OtherColumns
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges
from overnight.tasks.state.manifest import COUNTS, read_manifest
from overnight.tasks.state.published_rows import PART, PublishedRows, leave_record, published_rows
from overnight.tasks.state.row_ranges import Totals
from overnight.tasks.state.run import Run, is_of_all_rows, published_files, read_json
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.column_statistics import combine
from overnight.tasks.write.merge.merge_parts import Prepared, staged_schema
from overnight.tasks.write.sink import as_paths

PART_KEYS = ("generation", "attempt", "finished_at", "rows_written", "rows_out", "fingerprint")


@dataclass(frozen=True)
class Continued:
    """The receipt of the generation that a run continues, its rows in files that stay, and the run's own record."""

    receipt: Mapping[str, Any]
    kept: PublishedRows
    record: Mapping[str, Any]


def read_continued(run: Run) -> Continued | None:
    """Return the generation whose rows the run keeps; None if the run is of all rows."""
    record = read_json(run.home / "generation.json") or {}
    if is_of_all_rows(record):
        return None
    receipt = read_json(run.ledger / "receipts" / f"{record['continues']}.json") or {}
    rows = published_rows(run, record["continues"], published_files(receipt))
    return Continued(receipt, _without(rows, record["replaced"]), record)


def _without(published: PublishedRows, replaced: list[str]) -> PublishedRows:
    """Return the description of the rows in the files that are not `replaced`."""
    if not replaced:
        return published
    by_file = {name: facts for name, facts in published.by_file.items() if name not in replaced}
    rows = sum(facts["rows"] for facts in by_file.values())
    columns = combine(facts["columns"] for facts in by_file.values())
    return PublishedRows(tuple(by_file), rows, published.schema, columns, by_file)


def refuse_other_columns(continued: Continued, ready: Prepared) -> None:
    """Raise `CheckFailed` if the new rows `ready` have other columns or types than the published rows."""
    before, now = continued.kept.schema, described(ready.schema)
    changes = []
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            changes.append(f"{name} ({before.get(name, 'no column')} -> {now.get(name, 'no column')})")
    if changes:
        message = f"expected the columns of the published rows, found others in the new rows: {', '.join(changes)}. "
        if continued.record["is_retry"]:
            raise CheckFailed(f"{message}Nothing was published. Run the whole partition with force.")
        raise OtherColumns(f"{message}Nothing was published. The next run runs the whole partition.")


def described(schema: pa.Schema) -> dict[str, str]:
    """Return the columns of a schema, as column -> name of its Arrow type."""
    return {field.name: str(field.type) for field in schema}


def continued_receipt(
    run: Run,
    continued: Continued,
    records: list[Record],
    merged: pa.Table,
    totals: Totals,
    rows_out: int,
    finished_at: str,
) -> dict[str, Any]:
    """Return the keys that the receipt of such a run changes or adds.

    `totals` and `rows_out` are for the whole partition: the counts of source rows, and the number of published rows.
    """
    earlier, record = continued.receipt, continued.record
    before = next((part.ranges for part in records if part.name == PART), row_ranges.RANGES.empty_table())
    old_rows = continued.kept.rows + sum(part.rows for part in records if part.is_kept)
    live = row_ranges.rows_in_state(before, blocks.LIVE)
    drops = row_ranges.rows_in_state(before, blocks.FILTERED)
    new_rows, filter_count = totals.written - live, totals.filtered - drops
    values = (run.generation, run.attempt, finished_at, new_rows, rows_out - old_rows, record["current"])
    part: dict[str, Any] = dict(zip(PART_KEYS, values, strict=True))
    if record["current"] != earlier["fingerprint"]:
        part["ingredients"] = record["ingredients"]
    keys: dict[str, Any] = {
        "fingerprint": earlier["fingerprint"],  # most rows are of the earlier run
        "ingredients": earlier["ingredients"],
        "parts": [*parts_of(earlier), part],
        "continued": {
            "generation": record["continues"],
            "why": record["why"],
            "rows_reused": live + drops,
            **_changes(run, continued, merged, totals),
            "files_replaced": len(record["replaced"]),
        },
    }
    if record["is_retry"]:
        keys["retried"] = {
            "generation": record["continues"],
            "rows_quarantined_before": earlier["rows_quarantined"],
            "rows_in": new_rows + filter_count + totals.quarantined,
            "rows_written": new_rows,
            "rows_filtered": filter_count,
            "rows_quarantined": totals.quarantined,
            "code": record["code"],
            "files_again": record["again"],
            "files_gone": record["gone"],
        }
    return keys


def _changes(run: Run, continued: Continued, merged: pa.Table, totals: Totals) -> dict[str, int]:
    """Return how many source rows and input files are new, changed and gone since the earlier generation."""
    manifest = replace(run, generation=continued.record["continues"]).manifest
    before, _ = read_manifest(manifest, ["path", "version"])
    now, _ = read_manifest(run.manifest, ["path", "version", *COUNTS])
    rows = row_ranges.rows_of_units(now, merged)
    positions = pc.index_in(now["path"], before["path"])
    versions = before["version"].take(positions.combine_chunks())
    is_new = positions.is_null().to_numpy()
    is_other = pc.fill_null(pc.not_equal(versions, now["version"]), False)
    is_again = pc.is_in(now["path"], pa.array(continued.record["again"], pa.string()))
    has_changed = pc.or_(is_other, is_again).to_numpy()
    is_absent = pc.invert(pc.is_in(before["path"], now["path"])).to_numpy()
    new_rows, other_rows = int(rows[is_new].sum()), int(rows[has_changed].sum())
    counts = {
        "rows_added": new_rows,
        "rows_changed": other_rows,
        "rows_removed": continued.receipt["rows_in"] - (totals.rows - new_rows - other_rows),
    }
    for name, paths, mask in (
        ("files_added", now["path"], is_new),
        ("files_changed", now["path"], has_changed),
        ("files_removed", before["path"], is_absent),
    ):
        counts[name] = len(pc.unique(paths.filter(pa.array(mask))))
    return counts


def parts_of(receipt: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a dict with `PART_KEYS` for each run whose rows the receipt's partition contains."""
    if "parts" in receipt:
        return list(receipt["parts"])
    return [{name: receipt[name] for name in PART_KEYS}]


def published_places(run: Run, continued: Continued | None) -> list[Location]:
    """Return the published Parquet files that a run keeps, for the job's own check."""
    if continued is None:
        return []
    return [run.sink / file for file in continued.kept.files if file.endswith(".parquet")]


def leave_for_next(run: Run, records: list[Record], merged: pa.Table, ready: Prepared, files: list[str]) -> None:
    """Write the record with which a later run can keep the rows of this publish.

    `records` and `merged` are the footers and ranges of the staged parts. `files` are the files of the publish `ready`.
    """
    by_file = dict(ready.kept.by_file) if ready.kept else {}
    for file in ready.files:
        [path] = as_paths(run, [file.name])
        by_file[path] = {"rows": file.rows, "bytes": file.bytes, "columns": file.columns}
    by_file = {path: facts for path, facts in by_file.items() if path in files}
    rows = PublishedRows(tuple(files), ready.rows, described(ready.schema), ready.columns, by_file)
    leave_record(run, staged_schema(records), merged, rows, columns_not_published(records))


def columns_not_published(records: list[Record]) -> list[str]:
    """Return the sorted names of the columns that the staged parts left out."""
    names = set[str]()
    for record in records:
        names.update(record.left_out)
    return sorted(names)
