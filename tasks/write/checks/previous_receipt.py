"""Read earlier results of a job: the receipt for a comparison, and the columns of other partitions."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.state.run import Run, published_files

LOOK_BACK = 31


def previous_receipt(run: Run) -> dict[str, Any] | None:
    """Return the newest receipt of the job's `LOOK_BACK` partitions before this one, or this partition's last receipt.

    Return None if there is no receipt, and for a sample.
    """
    own = run.ledger.name
    earlier = [name for name in _partitions(run) if name < own]
    return next(run.receipts_of([*earlier[::-1][:LOOK_BACK], run.ledger.name]), None)


def other_schemas(run: Run) -> Iterator[pa.Schema]:
    """Yield the schema of one published Parquet file of each partition of the job; nothing for a sample.

    First come up to `LOOK_BACK` earlier partitions, the nearest first, then this one, then as many later ones.
    """
    own, names = run.ledger.name, sorted(_partitions(run))
    earlier, later = [name for name in names if name < own], [name for name in names if name > own]
    for receipt in run.receipts_of([*earlier[::-1][:LOOK_BACK], own, *later[:LOOK_BACK]]):
        for file in published_files(receipt):
            if file.endswith(".parquet"):
                with contextlib.suppress(FileNotFoundError), (run.sink / file).open() as content:
                    yield pq.ParquetFile(content).schema_arrow
                break


def _partitions(run: Run) -> list[str]:
    return [name for name in run.state.names() if name.startswith(f"{run.partition_column}=")]
