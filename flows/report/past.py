"""What the ledger has beside a run's receipt: earlier receipts, quarantined rows, and the work of a run that failed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pyarrow as pa

from overnight.flows.job.model import Job
from overnight.flows.ledger import reader
from overnight.flows.ledger.published_rows import quarantine_of, read_parquet, records_of_receipt
from overnight.flows.ledger.results import FAILED
from overnight.tasks.errors import STAGES, OvernightError
from overnight.tasks.rows.reasons import pattern
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.manifest import COUNTS, read_manifest
from overnight.tasks.state.run import read_json

COMPARED = 7  # earlier partitions
LOOK_BACK = 14  # partitions
SHOWN_ROWS = 4

Record = Mapping[str, Any]


@dataclass
class Reason:
    """A reason of quarantined rows: its stage and type, the message of one row, the number of rows, and some rows."""

    stage: str
    error_type: str
    message: str
    count: int = 0
    rows: list[Mapping[str, Any]] = field(default_factory=list)


def earlier_receipts(job: Job, record: Record) -> list[dict[str, Any]]:
    """Return at most `COMPARED` receipts, the newest first: of earlier partitions, then of earlier runs of this one.

    A sample is compared with nothing, because its rows may differ from the others.
    """
    if job.outputs_of(record).are_samples or record.get("status") != "published":
        return []
    ledger, column = records_of_receipt(job, record).name, job.sink.partition_column
    receipts = reader.earlier_receipts(job.state_location, column, job.name, LOOK_BACK, ledger, before=ledger)
    days = [receipt for receipt in receipts if receipt["partition"] != record["partition"]]
    runs = [receipt for receipt in receipts if receipt["partition"] == record["partition"]]
    runs = [receipt for receipt in runs if receipt["generation"] < record["generation"]]  # they sort by time
    days.sort(key=itemgetter("partition"), reverse=True)
    runs.sort(key=itemgetter("generation"), reverse=True)
    return [*days, *runs][:COMPARED]


def quarantined_rows(job: Job, record: Record) -> pa.Table:
    """Return the quarantine of a run, or an empty table if it has none or the file is gone."""
    try:
        if record.get("status") == "published":
            return quarantine_of(job, record)
        return read_parquet(records_of_receipt(job, record) / FAILED)
    except FileNotFoundError:
        return staged_parts.QUARANTINE.empty_table()


def group_reasons(rows: Iterable[Mapping[str, Any]]) -> list[Reason]:
    """Return the reasons of the rows of a quarantine, the most frequent first."""
    reasons: dict[tuple[str, str, str], Reason] = {}
    for row in rows:
        message = str(row["error_message"] or "")
        kind = (str(row["stage"]), str(row["error_type"]), pattern(message, row))
        reason = reasons.setdefault(kind, Reason(*kind[:2], message))
        reason.count += 1
        if len(reason.rows) < SHOWN_ROWS:
            reason.rows.append(row)
    return sorted(reasons.values(), key=lambda reason: -reason.count)


def attempt_names(job: Job, record: Record) -> list[str]:
    """Return the names of the attempts of a run's generation, the oldest first."""
    folder = records_of_receipt(job, record) / "generations" / str(record.get("generation")) / "attempts"
    return folder.names() or [str(record["attempt"])] if record.get("attempt") else []


def with_work(job: Job, record: Record) -> dict[str, Any]:
    """Return the record of a run that did not publish with the counts and the stages of its staged rows.

    They are missing if the run staged nothing, or its files are gone.
    """
    home = records_of_receipt(job, record) / "generations" / str(record.get("generation"))
    started_at = (read_json(home / "generation.json") or {}).get("created_at")
    result = {"started_at": started_at, "finished_at": record.get("failed_at"), **record}
    try:
        manifest, _ = read_manifest(home / "manifest", COUNTS)
        parts = staged_parts.read_records(home / "parts")
        totals = row_ranges.count(manifest, row_ranges.merge([part.ranges for part in parts]))
    except (OSError, OvernightError, ValueError):  # pyarrow raises ValueError for a file that is cut off
        return result
    work: dict[str, dict[str, float]] = {name: {"seconds": 0.0, "rows": 0, "bytes": 0} for name in STAGES}
    for part in parts:
        for name, measures in part.stages.items():
            for figure, amount in measures.items():
                work[name][figure] += amount
    timeline = record.get("stages") or {}
    kept = totals.written + totals.filtered + totals.quarantined
    # the manifest does not know the rows of a file of texts that is read in part
    rows_in = max(totals.rows, kept, timeline.get("ingest", {}).get("rows", 0))
    counts = {"rows_in": rows_in, "rows_kept": kept}
    counts |= {"rows_filtered": totals.filtered, "rows_quarantined": totals.quarantined}
    stages = {name: measures | timeline.get(name, {}) for name, measures in work.items()}
    return {**result, **counts, "stages": stages}


def has_published(job: Job, record: Record) -> bool:
    """Return True if the partition has published rows."""
    return (records_of_receipt(job, record) / "receipt.json").exists()
