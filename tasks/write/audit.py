"""The audit between staging and publishing: every source row is settled exactly once, and the job's checks hold."""

import pyarrow as pa

from tasks.errors import CheckFailed
from tasks.settled import Totals, count
from tasks.write.checks import Checks


def audit(manifest: pa.Table, merged: pa.Table, checks: Checks, where: str) -> Totals:
    """The totals of a partition that may be published. Raises `CheckFailed` saying what to look at in `where`."""
    totals = count(manifest, merged)
    for units, what in ((totals.unsettled_units, "not settled"), (totals.doubled_units, "settled more than once")):
        if len(units):
            first = manifest["path"][int(units[0])].as_py()
            raise CheckFailed(
                f"rows of {len(units)} units are {what}, the first in {first}. Nothing was published. "
                f"The staged parts are kept in {where}; run again to resume, or with --force to start anew."
            )
    allowed = checks.quarantine_limit(totals.rows)
    if totals.quarantined > allowed:
        raise CheckFailed(
            f"checks.max_quarantined: {totals.quarantined} of {totals.rows} rows are quarantined, {allowed} are "
            f"allowed ({checks.max_quarantined:g}). Nothing was published; the reasons are in {where}/*.errors."
        )
    if totals.written < checks.min_rows and totals.rows:
        raise CheckFailed(
            f"checks.min_rows: expected at least {checks.min_rows} rows, found {totals.written} "
            f"({totals.filtered} filtered, {totals.quarantined} quarantined). Nothing was published; see {where}."
        )
    return totals
