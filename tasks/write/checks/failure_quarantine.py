"""The quarantine of a failed run, which is kept beside `failure.json`, so that a user can inspect it."""

import logging
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.state import lease, row_ranges, staged_parts
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.write.checks.reasons import reasons


def kept_quarantine(run: Run) -> pa.Table:
    """Write the rows that the run has quarantined so far to a file beside `failure.json`, and return them.

    The table has schema `staged_parts.QUARANTINE`. It is empty if no row is quarantined. If reading or writing fails,
    it is empty too, and the error is only logged.
    """
    try:
        lease.check(run.ledger, run.token)
        records = staged_parts.read_records(run.parts)
        staged = staged_parts.read_errors(run.parts, records, row_ranges.merge([record.ranges for record in records]))
        _, rows = supervisor.ask(run, supervisor.Supervisor.quarantined_since, 0, supervisor.KEPT) or (0, [])
        told = pa.Table.from_pylist(rows, schema=staged_parts.QUARANTINE)
        found = pa.concat_tables([staged, told.filter(pc.invert(pc.is_in(told["row_id"], staged["row_id"])))])
        if len(found):
            run.failure_quarantine.write_bytes(staged_parts.parquet_bytes(found, "zstd"))
        return found
    except Exception as error:  # it must not hide the run's own error
        logging.getLogger(__name__).warning("the quarantine of the failed run is not kept: %s", error)
        return staged_parts.QUARANTINE.empty_table()


def losing_stage(errors: pa.Table) -> str:
    """Return the stage that quarantined the most rows; `write` if there are none.

    `errors` is the quarantine, with schema `staged_parts.QUARANTINE`.
    """
    return Counter(errors["stage"].to_pylist()).most_common(1)[0][0] if len(errors) else "write"


def told(found: pa.Table, run: Run) -> str:
    """Return lines for an error message about the quarantine `found` of a failed run.

    They have the number of its rows, the file that contains them, and their most frequent reasons.
    """
    kept = f"{len(found):,} quarantined row{'s' * (len(found) != 1)}, each with its reason: {run.failure_quarantine}"
    return "\n  ".join([kept, *reasons(found)])
