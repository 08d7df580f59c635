"""How many rows may be quarantined before a run ends, and of which rows."""

from pathlib import Path

import pyarrow as pa
import pytest

from overnight.tasks.state.manifest import UNITS
from overnight.tasks.workers.supervisor import QuarantineAllowed
from overnight.tasks.write.checks.quarantine_limit import quarantine_limit
from overnight.tasks.write.checks.settings import Checks
from tests.tasks.manifests import write_manifest
from tests.tasks.runs import make_run


@pytest.mark.parametrize(
    ("path", "rows", "limit", "of"),
    [
        ("b.csv", 19, 1, "of the 20 rows (0.05)"),
        ("b.csv", 4, 1, "of the 5 rows (0.05)"),
        ("b.csv.GZ", 1999, 100, "of the 2,000 rows (0.05)"),
        ("b.csv", None, 100, "even if the files held 2,002 rows, the most that their bytes can hold (0.05)"),
        ("b.csv.GZ", None, 2**62, "(0.05)"),
    ],
)
def test_the_limit_is_a_share_of_the_rows_or_of_the_most_that_the_bytes_can_hold(
    path: str, rows: int | None, limit: int, of: str, tmp_path: Path
) -> None:
    unit = {"uri": "u", "version": "v", "first_row": 0, "row_group": None}
    units = [unit | {"unit": 0, "path": "a.csv", "size": 1000, "rows": 1}]
    units += [unit | {"unit": 1, "path": path, "size": 3000, "rows": rows}]
    manifest, run = pa.Table.from_pylist(units, schema=UNITS), make_run(tmp_path)
    write_manifest(run.manifest, manifest, "digest", None)
    found = quarantine_limit(run, Checks(max_quarantined=0.05), manifest, already=3)
    assert found == QuarantineAllowed(limit, 3, of)
