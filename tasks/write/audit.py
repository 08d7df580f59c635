"""The audit between staging and publishing: every source row is settled exactly once."""

import pyarrow as pa

from tasks.errors import CheckFailed
from tasks.settled import Totals, count


def audit(manifest: pa.Table, merged: pa.Table, where: str) -> Totals:
    """The totals of a partition that may be published. Raises `CheckFailed` saying what to look at in `where`."""
    totals = count(manifest, merged)
    for units, what in ((totals.unsettled_units, "not settled"), (totals.doubled_units, "settled more than once")):
        if len(units):
            first = manifest["path"][int(units[0])].as_py()
            raise CheckFailed(
                f"rows of {len(units)} units are {what}, the first in {first}. Nothing was published. "
                f"The staged parts are kept in {where}; run again to resume, or with --force to start anew."
            )
    return totals
