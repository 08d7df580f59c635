"""Read earlier results of a job: the receipt for a comparison, and the columns of other partitions."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.state.run import Run, published_files, read_json

LOOK_BACK = 31


def previous_receipt(run: Run) -> dict[str, Any] | None:
    """Return the receipt with which the run's result is compared, or None if there is none.

    It is the receipt of the newest earlier partition that this job published, among the `LOOK_BACK` partitions before
    this one. If there is none, it is the partition's own last receipt. So a job with dates is compared with the day
    before, even when it runs again because its last result was wrong. A job without dates is compared with its last
    run.

    Return None also for a sample (`limit_rows`), because its rows may differ from the rest.
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


def other_schemas(run: Run) -> Iterator[pa.Schema]:
    """Yield the schema of one published Parquet file of each partition of the job that has such a file.

    The order is: up to `LOOK_BACK` earlier partitions, the nearest first, the last result of this partition, and up to
    `LOOK_BACK` later partitions. Yield nothing for a sample (`limit_rows`).
    """
    if run.limit_rows:
        return
    prefix, own = f"{run.partition_column}=", run.ledger.name
    others = sorted(name for name in run.state.names() if name.startswith(prefix) and name != own)
    earlier, later = [name for name in others if name < own], [name for name in others if name > own]
    for name in [*earlier[::-1][:LOOK_BACK], own, *later[:LOOK_BACK]]:
        receipt = read_json(run.state / name / "receipt.json")
        files = published_files(receipt) if receipt and receipt["job"] == run.job else []
        file = next((file for file in files if file.endswith(".parquet")), None)
        if file:
            with contextlib.suppress(FileNotFoundError), (run.sink / file).open() as opened:
                yield pq.ParquetFile(opened).schema_arrow
