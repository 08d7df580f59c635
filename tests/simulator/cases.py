"""The cases of the nightly simulation: each sink with the programs that can meet at its partition.

PostgreSQL is not among them: its locks wait by the server's own clock. `tests/contracts/crash_points` has it.
"""

import os

from tests.simulator.simulation import Case

FOLDER_IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
MEETINGS = (("run", "force", "run"), ("run", "run", "force"), ("run", "clean", "run"), ("retry", "force", "run"),
            ("force", "retry", "run"), ("clean", "run", "force"))  # fmt: skip
OF_UNDO = (("undo", "force", "run"), ("force", "undo", "run"), ("run", "undo", "force"), ("undo", "clean", "run"),
           ("clean", "undo", "force"))  # fmt: skip
STORES = ("disk", "memory")
FILES = ("parquet", "jsonl", "csv", "images")
TABLES = ("delta", "iceberg", "lance", "sql")
CASES = [
    *(Case("parquet", store, programs) for store in STORES for programs in MEETINGS + OF_UNDO),
    *(Case(kind, store, programs) for kind in FILES[1:] for store in STORES for programs in (MEETINGS[0], OF_UNDO[0])),
    *(Case(kind, "disk", programs) for kind in TABLES for programs in MEETINGS[:2]),
    *(Case(kind, "disk", programs) for kind in TABLES if kind != "sql" for programs in OF_UNDO[:2]),
    *(Case("parquet", store, programs, "all") for store in STORES for programs in (MEETINGS[0], OF_UNDO[0])),
]
