"""The cases of the nightly simulation: each sink with the programs that can meet at its partition.

PostgreSQL is not among them: its locks wait by the server's own clock. `tests/contracts/crash_points` has it.
"""

import os

from tests.simulator.simulation import Case

FOLDER_IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
MEETINGS = (("run", "force", "run"), ("run", "run", "force"), ("run", "clean", "run"), ("retry", "force", "run"),
            ("force", "retry", "run"), ("clean", "run", "force"))  # fmt: skip
FILES = ("parquet", "jsonl", "csv", "images")
TABLES = ("delta", "iceberg", "lance", "sql")
CASES = [
    *(Case("parquet", store, programs) for store in ("disk", "memory") for programs in MEETINGS),
    *(Case(kind, store, MEETINGS[0]) for kind in FILES[1:] for store in ("disk", "memory")),
    *(Case(kind, "disk", programs) for kind in TABLES for programs in MEETINGS[:2]),
    *(Case("parquet", store, MEETINGS[0], "all") for store in ("disk", "memory")),
]
