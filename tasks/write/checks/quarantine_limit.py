"""The number of rows of a partition that may be quarantined before the run ends."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.run import Run
from overnight.tasks.write.checks.settings import Checks


def quarantine_limit(run: Run, checks: Checks, counts: pa.Table) -> int:
    """Return the number of rows of the partition that may be quarantined before the run ends.

    `counts` has the columns `rows` and `size` (in bytes) of the manifest. If `rows` is null for some units, the limit
    is computed for the most rows that the files' bytes can contain. With compressed files (`.gz`), it is practically
    infinite.
    """
    if counts["rows"].null_count == 0:
        return checks.quarantine_limit(int(np.sum(counts["rows"].to_numpy())))
    paths = read_manifest(run.manifest, ["path"])[0]["path"]
    if pc.any(pc.ends_with(paths, ".gz", ignore_case=True)).as_py():
        return 2**62
    return checks.quarantine_limit(int(np.sum(counts["size"].to_numpy())) // 2 + len(counts))  # two bytes per row
