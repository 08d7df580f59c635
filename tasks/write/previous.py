"""The receipt that a run's columns are compared with."""

from typing import Any

from tasks.run_directory import Run, read_json

LOOK_BACK = 31


def previous_receipt(run: Run) -> dict[str, Any] | None:
    """That of the newest earlier partition that is published; where there is none, the partition's own last one.

    So a dated job is compared with the day before, also when it runs again because its own last result was wrong, and
    a job without dates with its last run. A sample (`limit_rows`) is not compared: its first rows need not be like the
    rest. Costs a listing of the ledger and, as a rule, one read; after `LOOK_BACK` partitions without a receipt the
    search ends.
    """
    if run.limit_rows:
        return None
    prefix, own = f"{run.partition_column}=", run.partition_directory
    earlier = [name for name in run.state.names() if name.startswith(prefix) and name < own]
    for name in [*earlier[::-1][:LOOK_BACK], run.ledger.name]:
        receipt = read_json(run.state / name / "receipt.json")
        if receipt and receipt["job"] == run.job:
            return receipt
    return None
