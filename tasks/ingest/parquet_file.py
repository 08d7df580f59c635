"""A Parquet file's row groups, and the rows of one. It knows nothing of which columns a source expects."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.errors import RowError
from tasks.ingest.counted import BROKEN, Judged, Part
from tasks.ingest.parquet_pages import values_in_pages
from tasks.ingest.parquet_types import plain
from tasks.ingest.tables import damage_told

ROWS_AT_ONCE = 8192
ROWS_A_BYTE = 8  # of a file; more of them are counted, for a footer can promise any number
COLUMNS_COMPARED = 8
INT96_IN_SECONDS = pa.timestamp("s")  # a type that Parquet has not
NANOSECONDS_UNTIL = 9_223_372_036  # seconds from 1970 that 64 bits hold in nanoseconds


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
        _compare(file, i, count)
        if count > ROWS_A_BYTE * size:
            _count(file, i, count)
    firsts = np.cumsum([0, *counts])
    return [Part(int(firsts[i]), counts[i], i, max(group.total_byte_size, 0)) for i, group in enumerate(groups)]


def rows_of(file: pq.ParquetFile, opened: Any, group: int, columns: Sequence[str] | None) -> Iterator[Judged]:
    """Yield the rows of a group, some at a time, as plain types: dictionaries as their values, and all may be null."""
    if group == BROKEN:
        return
    done = 0
    with damage_told(f"row group {group} of a Parquet file as it was written"):
        _compare_pages(file, opened, group)
        errors = _times_that_do_not_fit(file, opened, group, columns)
        unread = _values_of_lists(file, group, columns)
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=columns):
            unread -= slots(batch.column(0)) if unread else 0
            if unread > 0 and done + len(batch) == (count := file.metadata.row_group(group).num_rows):
                raise RowError(
                    f"expected {count:,} rows in row group {group}, as the footer says, found {unread:,} more values "
                    f"of the column {batch.schema.names[0]}"
                )
            data = plain(pa.Table.from_batches([batch]))
            yield Judged(data, {i: errors[done + i] for i in range(len(data)) if done + i in errors} if errors else {})
            done += len(data)
    if done < (expected := file.metadata.row_group(group).num_rows):
        raise RowError(f"expected {expected:,} rows in row group {group}, as the footer says, found {done:,}")


def _file(opened: Any, unit: str) -> pq.ParquetFile:
    return pq.ParquetFile(opened, pre_buffer=True, page_checksum_verification=True, coerce_int96_timestamp_unit=unit)


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


def _compare_pages(file: pq.ParquetFile, opened: Any, group: int) -> None:
    """Raise `RowError` if the pages of the smallest column hold other values than the footer says.

    The reader stops where the footer does, and would lose the rest in silence.
    """
    about = file.metadata.row_group(group)
    columns = [about.column(place) for place in range(about.num_columns)]
    if not columns:
        return
    smallest = min(columns, key=lambda column: column.total_compressed_size)
    starts = [place for place in (smallest.data_page_offset, smallest.dictionary_page_offset) if place]
    found = values_in_pages(opened, min(starts), smallest.total_compressed_size) if starts else None
    if found is not None and found != smallest.num_values:
        raise RowError(
            f"expected {about.num_rows:,} rows in row group {group}, as the footer says, found pages of {found:,} "
            f"values of the column {smallest.path_in_schema}"
        )


def _values_of_lists(file: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> int:
    """Values of the first column that is read, if all columns are lists or hold some: only they tell rows; else 0."""
    leaves = [file.schema.column(place) for place in range(len(file.schema))]
    if not all(leaf.max_repetition_level for leaf in leaves):
        return 0
    read = [name for name in file.schema_arrow.names if columns is None or name in columns]
    firsts = [place for place, leaf in enumerate(leaves) if read and f"{leaf.path}.".startswith(f"{read[0]}.")]
    return int(file.metadata.row_group(group).column(firsts[0]).num_values) if firsts else 0


def slots(array: pa.Array) -> int:
    """How many values Parquet keeps for the first column inside: one for a list that is empty or null, too."""
    kind = array.type
    if pa.types.is_struct(kind) and kind.num_fields:
        return slots(array.flatten()[0])
    if pa.types.is_fixed_size_list(kind) and kind.list_size:
        return slots(array.flatten()) + int(array.null_count)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        stops = array.offsets.to_numpy()
        inside = (array.keys if pa.types.is_map(kind) else array.values)[stops[0] : stops[-1]]
        return slots(inside) + int(np.count_nonzero(np.diff(stops) == 0))
    return len(array)


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
    tables = [_file(opened, unit).read_row_group(group, columns=names) for unit in ("s", "us", "ns")]
    errors: dict[int, Exception] = {}
    for name in names:
        found = [_leaves(name, table[name].combine_chunks(), np.arange(len(table))) for table in tables]
        for (path, rows, in_seconds), (*_, in_micros), (*_, in_nanos) in zip(*found, strict=True):
            if in_seconds.type != INT96_IN_SECONDS:
                continue
            whole, told, finest = map(_integers, (in_seconds, in_micros, in_nanos))
            is_fine = (np.abs(whole) < NANOSECONDS_UNTIL) & (finest % 1000 != 0)
            for place in np.flatnonzero((told // 10**6 != whole) | is_fine).tolist():
                why = "with nanoseconds" if is_fine[place] else "outside the years that 64 bits hold"
                reason = RowError(f"column {path}: expected a time in microseconds, found an INT96 time {why}")
                errors.setdefault(int(rows[place]), reason)
    return errors


def _int96_columns(file: pq.ParquetFile) -> set[str]:
    """The columns that are INT96 times, or hold some."""
    leaves = [file.schema.column(place) for place in range(len(file.schema))]
    paths = [f"{leaf.path}." for leaf in leaves if leaf.physical_type == "INT96"]
    return {name for name in file.schema_arrow.names if any(path.startswith(f"{name}.") for path in paths)}


def _leaves(path: str, array: pa.Array, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray, pa.Array]]:
    """The values in a column that hold no others, by the names of fields, and the row of each value."""
    kind = array.type
    if pa.types.is_struct(kind):
        for field, values in zip(kind, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", values, rows)
    elif pa.types.is_fixed_size_list(kind):
        yield from _leaves(path, array.flatten(), rows[pc.list_parent_indices(array).to_numpy()])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        stops = array.offsets.to_numpy()
        inside = slice(stops[0], stops[-1])
        owners = np.repeat(rows, np.diff(stops))
        for values in (array.keys, array.items) if pa.types.is_map(kind) else (array.values,):
            yield from _leaves(path, values[inside], owners)
    else:
        yield path, rows, array


def _integers(times: pa.Array) -> np.ndarray:
    return times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
