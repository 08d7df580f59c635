"""Keep the samples of a partition side by side: a new sample of `--limit-rows` does not replace the rows of the others.

Below `<state>/samples/date=D/` (or `all/`):

    receipts/<generation>.json      the receipt of every sample; sample 1 is the oldest
    rows/<generation>.parquet       the rows of the newest ten samples
    generations/<generation>/quarantine

`<state>/samples/published/` has the rows of the newest sample as the job's own sink writes them.
"""

import logging
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.flows.job.model import Job
from overnight.flows.ledger.published_rows import batches, records_of, with_images
from overnight.tasks.storage.location import Location

KEPT = 10


def keep_sample(job: Job, receipt: dict[str, Any]) -> None:
    """Copy the rows of the sample that was just published, and remove all but the newest `KEPT` copies.

    The run still has the lease of the partition's samples. An error becomes a warning, because the sample is published.
    """
    place = records_of(job, receipt["partition"], is_sample=True) / "rows"
    try:
        _write(place / f"{receipt['generation']}.parquet", job, receipt)
        for name in place.names()[:-KEPT]:
            (place / name).remove()
    except Exception as error:
        logging.getLogger(__name__).warning("the next sample will replace the rows of this one: %s", error)


def generations(job: Job, partition: str) -> list[str]:
    """Return the names of the generations of a partition's samples, the oldest first."""
    names = (records_of(job, partition, is_sample=True) / "receipts").names()
    return [name.removesuffix(".json") for name in names if name.endswith(".json")]


def _write(place: Location, job: Job, receipt: dict[str, Any]) -> None:
    writer: pq.ParquetWriter | None = None
    with place.writing() as file:
        for rows in batches(job, receipt):
            found: pa.Table = with_images(rows, job, receipt)
            writer = writer or pq.ParquetWriter(file, found.schema, compression="zstd")
            writer.write_table(found.cast(writer.schema))
        (writer or pq.ParquetWriter(file, pa.schema([]))).close()
