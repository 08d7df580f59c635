"""A Parquet file's row groups, and the rows of one. It knows nothing of which columns a source expects."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.ingest.counted import BROKEN, Part
from tasks.ingest.tables import damage_told

ROWS_AT_ONCE = 8192


def row_groups(opened: Any) -> list[Part]:
    with damage_told("a whole Parquet file"):
        metadata = pq.ParquetFile(opened).metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    firsts = np.cumsum([0, *(group.num_rows for group in groups)])
    return [Part(int(firsts[i]), group.num_rows, i, group.total_byte_size) for i, group in enumerate(groups)]


def open_parquet(opened: Any) -> pq.ParquetFile:
    with damage_told("a whole Parquet file"):
        return pq.ParquetFile(opened, pre_buffer=True, page_checksum_verification=True)


def rows_of(file: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """The rows of a group; dictionaries come as their values: what is one in one file may be none in the next."""
    groups = [] if group == BROKEN else [group]
    with damage_told(f"row group {group} of a Parquet file as it was written"):
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=columns):
            data = pa.Table.from_batches([batch])
            for place, field in enumerate(data.schema):
                if pa.types.is_dictionary(field.type):
                    data = data.set_column(place, field.name, data[field.name].cast(field.type.value_type))
            yield data
