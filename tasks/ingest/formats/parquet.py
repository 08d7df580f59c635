"""A Parquet file's row groups, and the rows of a group. This file does not use the columns that a source expects."""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.parquet_counts import compare, compare_pages, count_rows, slots, values_of_lists
from overnight.tasks.ingest.formats.parquet_times import times_that_do_not_fit
from overnight.tasks.ingest.formats.parquet_types import plain
from overnight.tasks.ingest.reading.table_blocks import translate_corruption
from overnight.tasks.ingest.reading.unit_rows import BROKEN, Judged, RowRange

ROWS_AT_ONCE, BYTES_AT_ONCE = 8192, 16 * 2**20
DICTIONARY_BYTES = 2**20  # the maximum of most writers
ROWS_OF_A_DICTIONARY = 32  # if each row has a value as large as the dictionary, rows have 32 times BYTES_AT_ONCE
ROWS_A_BYTE = 8  # of the file; if a footer declares more rows, they are counted, because it can declare any number


class _Unread(Exception):
    """Code tried to read a part of a file for which only the footer is available."""


class _NoBytes(io.RawIOBase):
    """A file of this number of bytes that cannot be read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size, self._place = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        self._place = place + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, size: int = -1) -> bytes:
        raise _Unread


def open_parquet(opened: Any) -> pq.ParquetFile:
    """Return the Parquet file in `opened`. Times of type INT96 are read in microseconds.

    Nanoseconds would end in the year 2262. Raise `RowError` if it is not a Parquet file, or if a column name occurs
    twice.
    """
    with translate_corruption("a whole Parquet file"):
        file = _file(opened, "us")
    names = file.schema_arrow.names
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise RowError(f"expected each column once, found several named {', '.join(double)}")
    return file


def row_groups(file: pq.ParquetFile, opened: Any) -> list[RowRange]:
    """Return a `RowRange` for each row group. Its `number` is the group's index.

    `opened` is the file that `file` reads. Raise `RowError` if the numbers of rows in the footer contradict each other
    or the file. Raise it also if reading a group would end the process.
    """
    metadata, size = file.metadata, opened.seek(0, os.SEEK_END)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    counts = [group.num_rows for group in groups]
    if metadata.num_rows not in (sum(counts), 0):  # some writers leave it at 0; then no group is missing
        raise RowError(f"expected {metadata.num_rows:,} rows, by the footer, found row groups of {sum(counts):,}")
    for i, count in enumerate(counts):
        _refuse_deadly(file, size, i)
        compare(file, i, count)
        if count > ROWS_A_BYTE * size:
            count_rows(file, i, count)
    firsts = np.cumsum([0, *counts])
    return [RowRange(int(firsts[i]), counts[i], i, max(group.total_byte_size, 0)) for i, group in enumerate(groups)]


def rows_of(file: pq.ParquetFile, opened: Any, group: int, columns: Sequence[str] | None) -> Iterator[Judged]:
    """Yield the rows of a row group, some at a time, and the errors of bad rows by their positions in these rows.

    Dictionary columns become columns of their values, and inner fields become nullable.

    Args:
        opened: The file that `file` reads.
        group: The index of the group. If it is `BROKEN`, the file was broken when it was listed: yield nothing, and
            raise the file's error if it still has one.
        columns: The names of the columns to read; None: all.

    Raises:
        RowError: The group is damaged, or has another number of rows than the footer.
    """
    if group == BROKEN:
        row_groups(file, opened)
        return
    done = 0
    with translate_corruption(f"row group {group} of a Parquet file as it was written"):
        compare_pages(file, opened, group)
        errors = times_that_do_not_fit(file, partial(_file, opened), group, columns)
        unread = values_of_lists(file, group, columns)
        rows_at_once = _rows_at_once(file, group, columns)
        batches = file.iter_batches(rows_at_once, row_groups=[group], columns=columns)
        for batch in _joined(batches) if rows_at_once < ROWS_AT_ONCE else batches:
            unread -= slots(batch.column(0)) if unread else 0
            if unread > 0 and done + len(batch) == (count := file.metadata.row_group(group).num_rows):
                raise RowError(
                    f"expected {count:,} rows in row group {group}, by the footer, found {unread:,} more values "
                    f"of the column {batch.schema.names[0]}"
                )
            data = plain(pa.Table.from_batches([batch]))
            yield Judged(data, {i: errors[done + i] for i in range(len(data)) if done + i in errors} if errors else {})
            done += len(data)
    if done < (expected := file.metadata.row_group(group).num_rows):
        raise RowError(f"expected {expected:,} rows in row group {group}, by the footer, found {done:,}")


def _rows_at_once(file: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> int:
    """Return how many rows of a group pyarrow may read at a time, so that their bytes are bounded.

    A value that a dictionary has once may be in every row. No value is larger than its column.
    """
    metadata = file.metadata.row_group(group)
    every = map(metadata.column, range(metadata.num_columns))
    read = [one for one in every if columns is None or one.path_in_schema.split(".")[0] in columns]
    average = sum(max(one.total_uncompressed_size, 0) for one in read) / max(metadata.num_rows, 1)
    coded = max((_dictionary_bytes(one) for one in read), default=0) / ROWS_OF_A_DICTIONARY
    return int(np.clip(BYTES_AT_ONCE / max(average, coded, 1), 1, ROWS_AT_ONCE))


def _dictionary_bytes(column: Any) -> int:
    """Return the most bytes that one value of a column's dictionary may have, as far as the footer shows."""
    is_coded = column.physical_type == "BYTE_ARRAY" and any("DICTIONARY" in name for name in column.encodings)
    return min(max(column.total_uncompressed_size, 0), DICTIONARY_BYTES) if is_coded else 0


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches into larger ones of at most `ROWS_AT_ONCE` rows and `BYTES_AT_ONCE` bytes."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + len(batch) > ROWS_AT_ONCE or size + batch.nbytes > BYTES_AT_ONCE):
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
    if held:
        yield pa.concat_batches(held)


def _file(opened: Any, unit: str) -> pq.ParquetFile:
    return pq.ParquetFile(opened, pre_buffer=True, page_checksum_verification=True, coerce_int96_timestamp_unit=unit)


def _refuse_deadly(file: pq.ParquetFile, size: int, group: int) -> None:
    """Raise `RowError` if the footer describes a column so wrongly that pyarrow would end the process.

    A trial read raises an error instead. It uses a file without bytes, so it ends before any byte is read.
    """
    names = [file.schema.column(place).path for place in range(len(file.schema))]
    empty = pq.ParquetFile(_NoBytes(size), metadata=file.metadata, pre_buffer=True)
    with translate_corruption("a whole Parquet file"), contextlib.suppress(_Unread, StopIteration):
        next(empty.iter_batches(1, row_groups=[group], columns=names, use_threads=False))
