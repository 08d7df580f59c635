"""A Parquet file's row groups, and the rows of one. It knows nothing of which columns a source expects."""

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.errors import RowError
from tasks.ingest.counted import BROKEN, Judged, Part
from tasks.ingest.parquet_types import plain
from tasks.ingest.tables import damage_told

ROWS_AT_ONCE = 8192
ROWS_A_BYTE = 8  # of a file; more of them are counted, for a footer can promise any number
COLUMNS_COMPARED = 8
NANOSECONDS_UNTIL = 9_223_372_036  # seconds from 1970 that 64 bits hold in nanoseconds


class _Unread(Exception):
    """Something was to be read of a file whose footer alone is looked at."""


class _NoBytes(io.RawIOBase):
    """A file of so many bytes, of which none can be read."""

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
    """Return the file, its INT96 times in microseconds: nanoseconds end in 2262. Raise `RowError` if it is none."""
    with damage_told("a whole Parquet file"):
        file = _file(opened, "us")
    names = file.schema_arrow.names
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise RowError(f"expected each column once, found several named {', '.join(double)}")
    return file


def row_groups(file: pq.ParquetFile, opened: Any) -> list[Part]:
    """Return the row groups as parts. Raise `RowError` if their numbers of rows are not those of what is there."""
    metadata, size = file.metadata, opened.seek(0, os.SEEK_END)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    counts = [group.num_rows for group in groups]
    if sum(counts) != metadata.num_rows:
        raise RowError(f"expected {metadata.num_rows:,} rows, as the footer says, found row groups of {sum(counts):,}")
    for i, count in enumerate(counts):
        _refuse_deadly(file, size, i, COLUMNS_COMPARED)
        _compare(file, i, count)
        if count > ROWS_A_BYTE * size:
            _refuse_deadly(file, size, i, len(file.schema))
            _count(file, i, count)
    firsts = np.cumsum([0, *counts])
    return [Part(int(firsts[i]), counts[i], i, max(group.total_byte_size, 0)) for i, group in enumerate(groups)]


def rows_of(file: pq.ParquetFile, opened: Any, group: int, columns: Sequence[str] | None) -> Iterator[Judged]:
    """Yield the rows of a group, some at a time, as plain types: dictionaries as their values, and all may be null.

    Raise `RowError` for what is damaged about them; of a file that was broken when it was listed, why.
    """
    if group == BROKEN:
        row_groups(file, opened)
        return
    done = 0
    with damage_told(f"row group {group} of a Parquet file as it was written"):
        errors = _times_that_do_not_fit(file, opened, group, columns)
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=columns):
            data = plain(pa.Table.from_batches([batch]))
            yield Judged(data, {i: errors[done + i] for i in range(len(data)) if done + i in errors} if errors else {})
            done += len(data)
    if done < (expected := file.metadata.row_group(group).num_rows):
        raise RowError(f"expected {expected:,} rows in row group {group}, as the footer says, found {done:,}")


def _file(opened: Any, unit: str) -> pq.ParquetFile:
    return pq.ParquetFile(opened, pre_buffer=True, page_checksum_verification=True, coerce_int96_timestamp_unit=unit)


def _refuse_deadly(file: pq.ParquetFile, size: int, group: int, columns: int) -> None:
    """Raise `RowError` if the footer is damaged about one of the first columns: asked for it, pyarrow ends the process.

    A read raises an error instead. It is one of a file without bytes, which ends before it reads any.
    """
    names = [file.schema.column(place).path for place in range(min(len(file.schema), columns))]
    empty = pq.ParquetFile(_NoBytes(size), metadata=file.metadata, pre_buffer=True)
    with damage_told("a whole Parquet file"), contextlib.suppress(_Unread, StopIteration):
        next(empty.iter_batches(1, row_groups=[group], columns=names, use_threads=False))


def _compare(file: pq.ParquetFile, group: int, count: int) -> None:
    """Raise `RowError` if a column has fewer values than the group has rows, or more without being of lists."""
    about = file.metadata.row_group(group)
    for place in range(min(about.num_columns, COLUMNS_COMPARED)):
        values, column = about.column(place).num_values, file.schema.column(place)
        if count < 0 or values < count or (values > count and not column.max_repetition_level):
            raise RowError(
                f"expected {count:,} rows in row group {group}, as the footer says, found {values:,} values of the "
                f"column {column.path}"
            )


def _count(file: pq.ParquetFile, group: int, count: int) -> None:
    """Raise `RowError` if the smallest column has another number of rows."""
    about = file.metadata.row_group(group)
    sizes = {about.column(i).path_in_schema: about.column(i).total_compressed_size for i in range(about.num_columns)}
    found = 0
    smallest = min(sizes, key=lambda name: sizes[name], default=None)
    if smallest:
        with damage_told(f"{count:,} rows in row group {group} of a Parquet file, as the footer says"):
            for batch in file.iter_batches(
                2**16, row_groups=[group], columns=[min(sizes, key=lambda name: sizes[name])]
            ):
                found += len(batch)
    if found != count:
        raise RowError(f"expected {count:,} rows in row group {group}, as the footer says, found {found:,}")


def _times_that_do_not_fit(
    file: pq.ParquetFile, opened: Any, group: int, columns: Sequence[str] | None
) -> dict[int, Exception]:
    """The rows of the group whose INT96 times are not what microseconds say, each with its error."""
    names = [name for name in columns or file.schema_arrow.names if name in _int96_columns(file)]
    if not names:
        return {}
    seconds, micros, nanos = (_file(opened, unit).read_row_group(group, columns=names) for unit in ("s", "us", "ns"))
    errors: dict[int, Exception] = {}
    for name in names:
        whole, told, finest = (_integers(table[name]) for table in (seconds, micros, nanos))
        is_fine = (np.abs(whole) < NANOSECONDS_UNTIL) & (finest % 1000 != 0)
        for row in np.flatnonzero((told // 10**6 != whole) | is_fine).tolist():
            why = "with nanoseconds" if is_fine[row] else "outside the years that 64 bits hold"
            errors[row] = RowError(f"column {name}: expected a time in microseconds, found an INT96 time {why}")
    return errors


def _int96_columns(file: pq.ParquetFile) -> set[str]:
    found = (file.schema.column(place) for place in range(len(file.schema)))
    return {one.path for one in found if one.physical_type == "INT96" and one.path == one.name}


def _integers(times: pa.ChunkedArray) -> np.ndarray:
    return times.cast(pa.int64()).fill_null(0).to_numpy()
