"""Checks of a Parquet file for damage and values that pyarrow itself passes over, or at which it ends the process.

pyarrow stops at the number of values in the footer, which has no check sum, without an error.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.reading.file_errors import translate_corruption

COLUMNS_COMPARED = 8
# of the file; if a footer declares more rows, they are counted, because it can declare any number
ROWS_A_BYTE = 8
IN_SECONDS = pa.timestamp("s")  # a type that Parquet lacks
NANOSECONDS_UNTIL = 9_223_372_036  # seconds from 1970 that 64 bits can represent in nanoseconds


def check_footer(file: pq.ParquetFile, size: int) -> None:
    """Raise `RowError` if the footer contradicts itself or the size of the file, or if pyarrow would crash at it."""
    metadata = file.metadata
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    # some writers leave it at 0; then no group is missing
    if metadata.num_rows not in (sum(counts), 0):
        raise RowError(f"expected {metadata.num_rows:,} rows, by the footer, found row groups of {sum(counts):,}")
    for group, count in enumerate(counts):
        _refuse_deadly(file, size, group)
        _compare_values(file, group, count)
        if count > ROWS_A_BYTE * size:
            _count_rows(file, group, count)


class _Unread(Exception):
    """Code tried to read a part of a file for which only the footer is available."""


class _NoBytes(io.RawIOBase):
    """A file of this number of bytes that cannot be read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size, self._position = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        raise _Unread


def _refuse_deadly(file: pq.ParquetFile, size: int, group: int) -> None:
    """Raise `RowError` if the footer describes a column so wrongly that pyarrow would end the process."""
    # A trial read raises an error instead. It uses a file without bytes, so it ends before any byte is read.
    names = [file.schema.column(column).path for column in range(len(file.schema))]
    empty = pq.ParquetFile(_NoBytes(size), metadata=file.metadata, pre_buffer=True)
    with translate_corruption("a whole Parquet file"), contextlib.suppress(_Unread, StopIteration):
        next(empty.iter_batches(1, row_groups=[group], columns=names, use_threads=False))


def _compare_values(file: pq.ParquetFile, group: int, count: int) -> None:
    """Raise `RowError` if a column has another number of values than rows. Only a column of lists may have more."""
    metadata = file.metadata.row_group(group)

    def repetition(number: int) -> int:
        return int(file.schema.column(number).max_repetition_level)

    for number in sorted(range(metadata.num_columns), key=repetition)[:COLUMNS_COMPARED]:  # lists last
        column, values = file.schema.column(number), metadata.column(number)
        is_more = values.num_values > count and not column.max_repetition_level
        if count < 0 or values.num_values < count or is_more:
            raise RowError(
                f"expected {count:,} rows in row group {group}, by the footer, found {values.num_values:,} values of "
                f"the column {column.path}"
            )


def _count_rows(file: pq.ParquetFile, group: int, count: int) -> None:
    """Read the smallest column of a row group. Raise `RowError` if it has another number of rows than `count`."""
    metadata = file.metadata.row_group(group)
    columns = map(metadata.column, range(metadata.num_columns))
    smallest = min(columns, key=lambda column: column.total_compressed_size, default=None)
    rows = 0
    if smallest:
        with translate_corruption(f"{count:,} rows in row group {group} of a Parquet file, by the footer"):
            names = [smallest.path_in_schema]
            rows = sum(map(len, file.iter_batches(2**16, row_groups=[group], columns=names)))
    if rows != count:
        raise RowError(f"expected {count:,} rows in row group {group}, by the footer, found {rows:,}")


def times_that_do_not_fit(
    file: pq.ParquetFile, reopen: Callable[[str], pq.ParquetFile], group: int, columns: Sequence[str] | None
) -> dict[int, Exception]:
    """Return the errors of rows with INT96 times that microseconds, the unit of reading, do not hold, by position."""
    names = [name for name in columns or file.schema_arrow.names if name in _int96_columns(file)]
    if not names:
        return {}
    tables = [reopen(unit).read_row_group(group, columns=names) for unit in ("s", "us", "ns")]
    errors: dict[int, Exception] = {}
    for name in names:
        leaves = [_leaves(name, table[name].combine_chunks(), np.arange(len(table))) for table in tables]
        for (path, rows, in_seconds), (*_, in_micros), (*_, in_nanos) in zip(*leaves, strict=True):
            if in_seconds.type != IN_SECONDS:
                continue
            seconds, micros, nanos = map(_integers, (in_seconds, in_micros, in_nanos))
            is_fine = (np.abs(seconds) < NANOSECONDS_UNTIL) & (nanos % 1000 != 0)
            for position in np.flatnonzero((micros // 10**6 != seconds) | is_fine).tolist():
                time = "with nanoseconds" if is_fine[position] else "outside the years that 64 bits can represent"
                reason = RowError(f"column {path}: expected a time in microseconds, found an INT96 time {time}")
                errors.setdefault(int(rows[position]), reason)
    return errors


def _int96_columns(file: pq.ParquetFile) -> set[str]:
    """Return the columns that are, or contain, INT96 times."""
    names = set()
    for leaf in map(file.schema.column, range(len(file.schema))):
        if leaf.physical_type == "INT96":
            names |= {name for name in file.schema_arrow.names if f"{leaf.path}.".startswith(f"{name}.")}
    return names


def _leaves(path: str, array: pa.Array, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray, pa.Array]]:
    """Yield the innermost values of a column: their path of field names, the row of each value, and the values."""
    kind = array.type
    if pa.types.is_struct(kind):
        for field, values in zip(kind, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", values, rows)
    elif pa.types.is_fixed_size_list(kind):
        yield from _leaves(path, array.flatten(), rows[pc.list_parent_indices(array).to_numpy()])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        stops = array.offsets.to_numpy()
        owners = np.repeat(rows, np.diff(stops))
        for values in (array.keys, array.items) if pa.types.is_map(kind) else (array.values,):
            yield from _leaves(path, values[stops[0] : stops[-1]], owners)
    else:
        yield path, rows, array


def _integers(times: pa.Array) -> np.ndarray:
    return times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
