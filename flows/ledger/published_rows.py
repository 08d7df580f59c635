"""Read the published rows of a partition, or of a sample, by its receipt, without Prefect and Ray.

Rows in Parquet, Delta, Iceberg and Lance keep their types. For CSV and JSON Lines, Arrow reads a whole file and infers
the types. For a database, the types follow from Python's values. The sink `images` keeps its rows in Parquet files,
which have the paths of the images. The column of the partition is left out, except in files of Iceberg.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.flows.job.model import Job
from overnight.tasks.errors import ContractError
from overnight.tasks.state.run import partition_directory, published_files
from overnight.tasks.storage.location import Location

LANCE, IMAGES = ".lance", ".images"
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
ROWS_AT_ONCE = 1024

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
    if _is_in_database(job, receipt):
        for found in _of_database(job, receipt):
            yield found.select(columns) if columns else found
        return
    places = files_of(job, receipt)
    if any(place.name.endswith(LANCE) for place in places):
        yield from _of_lance(job, receipt, columns)
        return
    for place in places:
        with place.open() as file:
            yield from _of_file(file, place, columns)


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


def _is_in_database(job: Job, receipt: Receipt) -> bool:
    return not job.sink.place and not receipt.get("limit_rows")


def _root(job: Job, receipt: Receipt) -> Location:
    return job.output_location(bool(receipt.get("limit_rows")))


def _of_database(job: Job, receipt: Receipt) -> Iterator[pa.Table]:
    from overnight.tasks.write.in_process import rows_of

    sink: Any = job.sink
    yield from rows_of(sink.url, sink.table, sink.partition_column, receipt["partition"], ROWS_AT_ONCE)


def _of_lance(job: Job, receipt: Receipt, columns: list[str] | None) -> Iterator[pa.Table]:
    from overnight.tasks.search.in_process import LanceRows

    column = job.sink.partition_column if receipt["partition"] != "all" else None
    rows = LanceRows(receipt["partition"], _root(job, receipt), column, receipt["table_version"])
    scanner = rows.table().scanner(columns=columns, filter=rows.own(), batch_size=ROWS_AT_ONCE)
    for batch in scanner.to_batches():
        found = pa.Table.from_batches([batch])
        yield found.drop_columns([column]) if column and column in found.column_names else found


def _of_file(file: Any, place: Location, columns: list[str] | None) -> Iterator[pa.Table]:
    """Yield the rows of a published file. The ending of its name shows the format."""
    name, _, ending = place.name.rpartition(".")
    if ending == "parquet":
        opened = pq.ParquetFile(file)
        yield pa.Table.from_batches([], opened.schema_arrow).select(columns or opened.schema_arrow.names)
        for batch in opened.iter_batches(ROWS_AT_ONCE, columns=columns):
            yield pa.Table.from_batches([batch])
        return
    if compression := COMPRESSED.get(f".{ending}"):
        file = pa.CompressedInputStream(file, compression)
        ending = name.rpartition(".")[2]
    if ending == "csv":
        from pyarrow import csv

        found = csv.read_csv(file)
    elif ending == "jsonl":
        from pyarrow import json

        found = json.read_json(file)
    else:
        raise ContractError(f"expected a published file of Parquet, CSV or JSON Lines, found {place}.")
    yield found.select(columns) if columns else found
