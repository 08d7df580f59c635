"""Read the published rows of a partition, or of a sample, by its receipt, without Prefect and Ray; keep samples.

The sink reads what it published (`Sink.read`). Columns keep their types, except in CSV and JSON Lines columns with
inner types, and in a database, whose types follow from Python's values.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.flows.job.model import Job
from overnight.tasks.state.run import partition_directory, published_files
from overnight.tasks.storage.location import Location

# Below `<state>/samples/date=D/` (or `all/`):
#
#    receipts/<generation>.json, generations/<generation>/quarantine    of every sample; sample 1 is the oldest
#    rows/<generation>.parquet                                          the rows of the newest ten samples
IMAGES = ".images"
KEPT = 10  # samples of a partition, the newest

Receipt = Mapping[str, Any]


def records_of(job: Job, partition: str, is_sample: bool) -> Location:
    """Return the directory of a partition's receipts and quarantine. With `is_sample`, return that of its samples."""
    ledger = job.ledger(partition)
    return job.state_location / "samples" / ledger.name if is_sample else ledger


def batches(job: Job, receipt: Receipt, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the published rows that a receipt describes, one table after another. Read all columns by default."""
    sink = job.sink.of_samples() if receipt.get("limit_rows") else job.sink
    yield from sink.read(_root(job, receipt), receipt, columns)


def table_of(job: Job, receipt: Receipt, columns: list[str] | None = None) -> pa.Table:
    tables = list(batches(job, receipt, columns))
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})


def files_of(job: Job, receipt: Receipt) -> list[Location]:
    """Return the published files of a receipt, without the image folders of the sink `images`; none for a database."""
    root = _root(job, receipt)
    return [root / name for name in published_files(dict(receipt)) if not name.endswith(IMAGES)]


def quarantine_of(job: Job, receipt: Receipt) -> pa.Table:
    """Return the quarantine of a receipt: `row_id`, `uri`, `stage`, `error_type` and `error_message`, all strings."""
    records = records_of(job, receipt["partition"], bool(receipt.get("limit_rows")))
    return read_parquet(records / "quarantine" / f"quarantine-{receipt['generation']}.parquet")


def with_images(table: pa.Table, job: Job, receipt: Receipt) -> pa.Table:
    """Return rows of the sink `images` with the bytes of the images in the place of their paths."""
    column = getattr(job.sink, "column", None)
    number = table.schema.get_field_index(f"{column}_path")
    if job.sink.kind != "images" or number < 0:
        return table
    folder = _root(job, receipt)
    if directory := partition_directory(job.sink.partition_column, receipt["partition"]):
        folder = folder / directory
    images = [(folder / path).read_bytes() if path else None for path in table[number].to_pylist()]
    return table.set_column(number, column, pa.array(images, pa.large_binary()))


def read_parquet(place: Location) -> pa.Table:
    """Return the rows of one Parquet file. Raise `FileNotFoundError` if it does not exist."""
    with place.open() as file:
        return pq.ParquetFile(file).read()


def _root(job: Job, receipt: Receipt) -> Location:
    return job.output_location(bool(receipt.get("limit_rows")))


def keep_sample(job: Job, receipt: dict[str, Any]) -> None:
    """Copy the rows of the sample that was just published, and remove all but the newest `KEPT` copies."""
    folder = records_of(job, receipt["partition"], is_sample=True) / "rows"
    try:
        with (folder / f"{receipt['generation']}.parquet").writing() as file:
            writer: pq.ParquetWriter | None = None
            for table in batches(job, receipt):
                rows: pa.Table = with_images(table, job, receipt)
                writer = writer or pq.ParquetWriter(file, rows.schema, compression="zstd")
                writer.write_table(rows.cast(writer.schema))
            (writer or pq.ParquetWriter(file, pa.schema([]))).close()
        for name in folder.names()[:-KEPT]:
            (folder / name).remove()
    except Exception as error:
        logging.getLogger(__name__).warning("the next sample will replace the rows of this one: %s", error)


def sample_generations(job: Job, partition: str) -> list[str]:
    """Return the names of the generations of a partition's samples, the oldest first."""
    names = (records_of(job, partition, is_sample=True) / "receipts").names()
    return [name.removesuffix(".json") for name in names if name.endswith(".json")]
