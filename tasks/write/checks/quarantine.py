"""The quarantine of a run: how many rows it may have, and what stays of it beside `failure.json` if the run fails."""

import logging
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.state import lease, row_ranges, staged_parts
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.supervisor import QuarantineAllowed
from overnight.tasks.write.checks.reasons import reasons
from overnight.tasks.write.checks.settings import Checks


def quarantine_limit(run: Run, checks: Checks, counts: pa.Table, already: int) -> QuarantineAllowed:
    """Return how many rows of the partition may be quarantined before the run ends, with the `already` staged ones.

    If a unit's `rows` in `counts` is null, the limit is that of the most rows that the files' bytes can contain.
    """
    share = f"({checks.max_quarantined:g})"
    if counts["rows"].null_count == 0:
        total = int(np.sum(counts["rows"].to_numpy()))
        return QuarantineAllowed(checks.quarantine_limit(total), already, f"of the {total:,} rows {share}")
    paths = read_manifest(run.manifest, ["path"])[0]["path"]
    if pc.any(pc.ends_with(paths, ".gz", ignore_case=True)).as_py():
        return QuarantineAllowed(2**62, already, share)
    most = int(np.sum(counts["size"].to_numpy())) // 2 + len(counts)  # two bytes per row
    reason = f"even if the files held {most:,} rows, the most that their bytes can hold {share}"
    return QuarantineAllowed(checks.quarantine_limit(most), already, reason)


def keep_quarantine(run: Run) -> pa.Table:
    """Write the rows that the run has quarantined so far to a file beside `failure.json`, and return them.

    If reading or writing fails, the table (schema `QUARANTINE`) is empty, and the error is only logged.
    """
    try:
        lease.check(run.ledger, run.token)
        records = staged_parts.read_records(run.parts)
        ranges = row_ranges.merge([record.ranges for record in records])
        quarantine = staged_parts.read_errors(run.parts, records, ranges)
        _, rows = supervisor.ask(run, supervisor.Supervisor.quarantined_since, 0, supervisor.KEPT) or (0, [])
        reports = pa.Table.from_pylist(rows, schema=staged_parts.QUARANTINE)
        is_known_row = pc.is_in(reports["row_id"], quarantine["row_id"])
        quarantine = pa.concat_tables([quarantine, reports.filter(pc.invert(is_known_row))])
        if len(quarantine):
            run.failure_quarantine.write_bytes(staged_parts.parquet_bytes(quarantine, "zstd"))
        return quarantine
    except Exception as error:  # it must not hide the run's own error
        logging.getLogger(__name__).warning("the quarantine of the failed run is not kept: %s", error)
        return staged_parts.QUARANTINE.empty_table()


def losing_stage(quarantine: pa.Table) -> str:
    """Return the stage that quarantined the most rows; `write` if there are none."""
    return Counter(quarantine["stage"].to_pylist() or ["write"]).most_common(1)[0][0]


def reasons_of(quarantine: pa.Table, run: Run) -> str:
    """Return lines for an error message: the number of quarantined rows, their file and their most frequent reasons."""
    count = len(quarantine)
    title = f"{count:,} quarantined row{'s' * (count != 1)}, each with its reason: {run.failure_quarantine}"
    return "\n  ".join([title, *reasons(quarantine)])
