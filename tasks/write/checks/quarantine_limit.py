"""The number of rows of a partition that may be quarantined before the run ends."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.run import Run
from overnight.tasks.workers.supervisor import QuarantineAllowed
from overnight.tasks.write.checks.settings import Checks


def quarantine_limit(run: Run, checks: Checks, counts: pa.Table, already: int) -> QuarantineAllowed:
    """Return how many rows of the partition may be quarantined before the run ends, with the `already` staged ones.

    `counts` has the columns `rows` and `size` (in bytes) of the manifest. If `rows` is null for some units, the limit
    is computed for the most rows that the files' bytes can contain. With compressed files (`.gz`), it is practically
    infinite.
    """
    share = f"({checks.max_quarantined:g})"
    if counts["rows"].null_count == 0:
        total = int(np.sum(counts["rows"].to_numpy()))
        return QuarantineAllowed(checks.quarantine_limit(total), already, f"of the {total:,} rows {share}")
    paths = read_manifest(run.manifest, ["path"])[0]["path"]
    if pc.any(pc.ends_with(paths, ".gz", ignore_case=True)).as_py():
        return QuarantineAllowed(2**62, already, share)
    most = int(np.sum(counts["size"].to_numpy())) // 2 + len(counts)  # two bytes per row
    unknown = f"even if the files held {most:,} rows, the most that their bytes can hold {share}"
    return QuarantineAllowed(checks.quarantine_limit(most), already, unknown)
