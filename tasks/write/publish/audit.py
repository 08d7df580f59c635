"""The audit between staging and publishing: every source row is settled exactly once."""

import pyarrow as pa

from overnight.tasks.errors import CheckFailed
from overnight.tasks.state.manifest import read_units
from overnight.tasks.state.row_ranges import Totals, count
from overnight.tasks.state.run import Run


def audit(counts: pa.Table, merged: pa.Table, run: Run) -> Totals:
    """Return the counts of a partition's source rows. Raise `CheckFailed` unless each row is settled once.

    `counts` has the columns `rows` and `first_row` of the manifest. `merged` has the ranges of rows that the staged
    parts settle, from `row_ranges.merge`. The error names the first file with a row that is unsettled or settled twice.
    """
    totals = count(counts, merged)
    for units, what in ((totals.unsettled_units, "not settled"), (totals.doubled_units, "settled more than once")):
        if len(units):
            first = read_units(run.manifest, units[:1])["path"][0].as_py()
            raise CheckFailed(
                f"rows of {len(units)} units are {what}, the first in {first}. Nothing was published. "
                f"The staged parts are kept in {run.parts}; run again to resume, or with force to start over."
            )
    return totals
