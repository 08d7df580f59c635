"""Read the published rows of a partition, or of a sample, by its receipt, without Prefect and Ray.

The sink reads what it published (`Sink.read`). Columns keep their types, except in two cases. In CSV and JSON Lines a
column with inner types is as the file has it. For a database, the types follow from Python's values.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.flows.job.model import Job
from overnight.tasks.state.run import partition_directory, published_files
from overnight.tasks.storage.location import Location

IMAGES = ".images"

Receipt = Mapping[str, Any]


def records_of(job: Job, partition: str, is_sample: bool) -> Location:
    """Return the directory of a partition's receipts and quarantine. With `is_sample`, return that of its samples."""
    ledger = job.ledger(partition)
    return job.state_location / "samples" / ledger.name if is_sample else ledger


def batches(job: Job, receipt: Receipt, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the published rows that a receipt describes, one table after another.

    Args:
        columns: The columns to read; all by default.

    Raises:
        FileNotFoundError: A later publish has replaced the files.
    """
    sink = job.sink.of_samples() if receipt.get("limit_rows") else job.sink
    yield from sink.read(_root(job, receipt), receipt, columns)


def table_of(job: Job, receipt: Receipt, columns: list[str] | None = None) -> pa.Table:
    """Return all published rows that a receipt describes, as one table.

    Args:
        columns: The columns to read; all by default.

    Raises:
        FileNotFoundError: A later publish has replaced the files.
    """
    found = list(batches(job, receipt, columns))
    return pa.concat_tables(found, promote_options="default") if found else pa.table({})


def files_of(job: Job, receipt: Receipt) -> list[Location]:
    """Return the published files of a receipt, without the image folders of the sink `images`.

    The list is empty for a database.
    """
    root = _root(job, receipt)
    return [root / name for name in published_files(dict(receipt)) if not name.endswith(IMAGES)]


def quarantine_of(job: Job, receipt: Receipt) -> pa.Table:
    """Return the quarantine of a receipt: `row_id`, `uri`, `stage`, `error_type` and `error_message`, all strings."""
    records = records_of(job, receipt["partition"], bool(receipt.get("limit_rows")))
    return read_parquet(records / "quarantine" / f"quarantine-{receipt['generation']}.parquet")


def with_images(table: pa.Table, job: Job, receipt: Receipt) -> pa.Table:
    """Return rows of the sink `images` with the bytes of the images in the place of their paths.

    Rows of other sinks stay unchanged.
    """
    column = getattr(job.sink, "column", None)
    place = table.schema.get_field_index(f"{column}_path")
    if job.sink.kind != "images" or place < 0:
        return table
    folder = _root(job, receipt)
    if directory := partition_directory(job.sink.partition_column, receipt["partition"]):
        folder = folder / directory
    found = [(folder / path).read_bytes() if path else None for path in table[place].to_pylist()]
    return table.set_column(place, column, pa.array(found, pa.large_binary()))


def read_parquet(place: Location) -> pa.Table:
    """Return the rows of one Parquet file. Raise `FileNotFoundError` if it does not exist."""
    with place.open() as file:
        return pq.ParquetFile(file).read()


def _root(job: Job, receipt: Receipt) -> Location:
    return job.output_location(bool(receipt.get("limit_rows")))
