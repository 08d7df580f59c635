"""How many rows may be quarantined before a run ends, and of which rows."""

from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.write.checks.quarantine_limit import quarantine_limit
from overnight.tasks.write.checks.settings import Checks


@pytest.mark.parametrize(("rows", "limit"), [(20, 1), (5, 1), (2000, 100)])
def test_a_share_of_known_rows_is_told_of_these_rows(rows: int, limit: int) -> None:
    counts = pa.table({"rows": [rows - 1, 1], "size": [9, 9]})
    unused: Any = None  # no manifest is read if the rows are known
    allowed = quarantine_limit(unused, Checks(max_quarantined=0.05), counts)
    assert (allowed.rows, allowed.of) == (limit, f"of the {rows:,} rows (0.05)")
