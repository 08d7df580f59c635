"""Read the published rows of a partition, or of a sample, by its receipt, without Prefect and Ray; keep samples.

The sink reads what it published (`Sink.read`). Columns keep their types, except in CSV and JSON Lines columns with
inner types, and in a database, whose types follow from Python's values.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.flows.job.model import Job
from overnight.tasks.config.partition_names import partition_folder
from overnight.tasks.state.run import published_files
from overnight.tasks.storage.location import Location

# Below `<state>/samples/date=D/` (or `all/`):
#
#    receipts/<generation>.json, generations/<generation>/quarantine    of every sample; sample 1 is the oldest
#    rows/<generation>.parquet                                          the rows of the newest ten samples
IMAGES = ".images"
KEPT = 10  # samples of a partition, the newest

Receipt = Mapping[str, Any]


def records_of_receipt(job: Job, receipt: Receipt) -> Location:
    """Return the directory of the records of a receipt's partition, or of its samples if the receipt is of one."""
    return job.outputs_of(receipt).ledger(receipt["partition"])


def batches(job: Job, receipt: Receipt, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the published rows that a receipt describes, one table after another. Read all columns by default."""
    outputs = job.outputs_of(receipt)
    yield from outputs.sink.read(outputs.files, receipt, columns)


def table_of(job: Job, receipt: Receipt, columns: list[str] | None = None) -> pa.Table:
    tables = list(batches(job, receipt, columns))
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})


def files_of(job: Job, receipt: Receipt) -> list[Location]:
    """Return the published files of a receipt, without the image folders of the sink `images`; none for a database."""
    root = job.outputs_of(receipt).files
    return [root / name for name in published_files(dict(receipt)) if not name.endswith(IMAGES)]


def quarantine_of(job: Job, receipt: Receipt) -> pa.Table:
    """Return the quarantine of a receipt: `row_id`, `uri`, `stage`, `error_type` and `error_message`, all strings."""
    records, generation = records_of_receipt(job, receipt), receipt["generation"]
    with contextlib.suppress(FileNotFoundError):
        return read_parquet(records / "quarantine" / f"quarantine-{generation}.parquet")
    return read_parquet(records / "generations" / generation / "quarantine")  # of a publish that was replaced


def with_images(table: pa.Table, job: Job, receipt: Receipt) -> pa.Table:
    """Return rows of the sink `images` with the bytes of the images in the place of their paths."""
    column = getattr(job.sink, "column", None)
    number = table.schema.get_field_index(f"{column}_path")
    if job.sink.kind != "images" or number < 0:
        return table
    outputs = job.outputs_of(receipt)
    directory = partition_folder(job.sink.partition_column, receipt["partition"])
    folders: dict[str, Location] = {}
    images = []
    for path in table[number].to_pylist():
        name, _, below = (path or "").partition("/")
        if path and name not in folders:
            folders[name] = outputs.sink.place_of(outputs.files, f"{directory}/{name}".lstrip("/"))
        images.append((folders[name] / below).read_bytes() if path else None)
    return table.set_column(number, column, pa.array(images, pa.large_binary()))


def read_parquet(place: Location) -> pa.Table:
    """Return the rows of one Parquet file. Raise `FileNotFoundError` if it does not exist."""
    with place.open() as file:
        return pq.ParquetFile(file).read()


def keep_sample(job: Job, receipt: dict[str, Any]) -> None:
    """Copy the rows of the sample that was just published, and remove all but the newest `KEPT` copies."""
    folder = records_of_receipt(job, receipt) / "rows"
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
