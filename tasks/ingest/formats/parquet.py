"""A Parquet file's row groups, and the rows of a group in batches that fit into memory.

A column with a dictionary is small in the file, but each row may hold its longest value. So its
batches are planned small, and small batches are joined.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.parquet_guards import check_footer, times_that_do_not_fit
from overnight.tasks.ingest.formats.parquet_types import plain
from overnight.tasks.ingest.reading.file_errors import translate_corruption
from overnight.tasks.ingest.reading.table_blocks import BYTES_AT_ONCE, ROWS_AT_ONCE, repeated
from overnight.tasks.ingest.reading.unit_rows import BROKEN, Judged, RowRange

DICTIONARY_BYTES = 2**20  # the maximum of most writers
# if each row has a value as large as the dictionary, rows have 32 times BYTES_AT_ONCE
ROWS_OF_A_DICTIONARY = 32


def open_parquet(handle: Any) -> pq.ParquetFile:
    """Return the Parquet file in `handle`. Its INT96 times are in microseconds: nanoseconds end in the year 2262."""
    with translate_corruption("a whole Parquet file"):
        file = _file(handle, "us")
    if doubles := repeated(file.schema_arrow.names):
        raise RowError(f"expected each column once, found several named {doubles}")
    return file


def _file(handle: Any, unit: str) -> pq.ParquetFile:
    return pq.ParquetFile(handle, pre_buffer=True, page_checksum_verification=True, coerce_int96_timestamp_unit=unit)


def row_groups(file: pq.ParquetFile, handle: Any) -> list[RowRange]:
    """Return the row groups of `file`, which reads `handle`. Raise `RowError` if the footer is damaged."""
    check_footer(file, handle.seek(0, os.SEEK_END))
    ranges, first = [], 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        ranges.append(RowRange(first, group.num_rows, number, max(group.total_byte_size, 0)))
        first += group.num_rows
    return ranges


def rows_of(file: pq.ParquetFile, handle: Any, group: int, columns: Sequence[str] | None) -> Iterator[Judged]:
    """Yield the rows of a row group of `file`, which reads `handle`, with the chosen columns in plain types."""
    if group == BROKEN:
        row_groups(file, handle)  # raises the error that it raised when the file was listed
        return
    count = 0
    with translate_corruption(f"row group {group} of a Parquet file as it was written"):
        errors = times_that_do_not_fit(file, partial(_file, handle), group, columns)
        for batch in _batches(file, group, columns):
            stop = count + len(batch)
            bad = {position - count: error for position, error in errors.items() if count <= position < stop}
            yield Judged(plain(pa.Table.from_batches([batch])), bad)
            count = stop
    if count < (total := file.metadata.row_group(group).num_rows):
        raise RowError(f"expected {total:,} rows in row group {group}, by the footer, found {count:,}")


def _batches(file: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    rows_at_once = _rows_at_once(file, group, columns)
    batches = file.iter_batches(rows_at_once, row_groups=[group], columns=columns)
    yield from _joined(batches) if rows_at_once < ROWS_AT_ONCE else batches


def _rows_at_once(file: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> int:
    """Return how many rows of a group pyarrow may read at a time. A value of a dictionary may be in every row."""
    metadata = file.metadata.row_group(group)
    size, dictionary_bytes = 0, 0
    for number in range(metadata.num_columns):
        column = metadata.column(number)
        if columns is None or column.path_in_schema.split(".")[0] in columns:
            column_size = max(column.total_uncompressed_size, 0)
            size += column_size
            if column.physical_type == "BYTE_ARRAY" and any("DICTIONARY" in name for name in column.encodings):
                dictionary_bytes = max(dictionary_bytes, min(column_size, DICTIONARY_BYTES))
    row_bytes = max(size / max(metadata.num_rows, 1), dictionary_bytes / ROWS_OF_A_DICTIONARY, 1)
    return int(np.clip(BYTES_AT_ONCE / row_bytes, 1, ROWS_AT_ONCE))


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches into larger ones of at most `ROWS_AT_ONCE` rows and `BYTES_AT_ONCE` bytes."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if group and (rows + len(batch) > ROWS_AT_ONCE or size + batch.nbytes > BYTES_AT_ONCE):
            yield pa.concat_batches(group)
            group, rows, size = [], 0, 0
        group.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
    if group:
        yield pa.concat_batches(group)
