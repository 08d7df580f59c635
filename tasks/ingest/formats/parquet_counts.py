"""Checks that a Parquet file's footer counts all of its values: pyarrow stops at that count without an error."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.parquet_pages import values_in_pages
from overnight.tasks.ingest.reading.table_blocks import translate_corruption

COLUMNS_COMPARED = 8


def compare(file: pq.ParquetFile, group: int, count: int) -> None:
    """Raise `RowError` if the footer's number of values of a column does not fit `count`, the rows of the group.

    A column of lists may have more values. At most `COLUMNS_COMPARED` columns are compared, lists last.
    """
    about = file.metadata.row_group(group)
    places = sorted(range(about.num_columns), key=lambda place: file.schema.column(place).max_repetition_level)
    for place in places[:COLUMNS_COMPARED]:
        values, column = about.column(place).num_values, file.schema.column(place)
        if count < 0 or values < count or (values > count and not column.max_repetition_level):
            raise RowError(
                f"expected {count:,} rows in row group {group}, by the footer, found {values:,} values of the "
                f"column {column.path}"
            )


def compare_pages(file: pq.ParquetFile, opened: Any, group: int) -> None:
    """Raise `RowError` if the pages of the group's smallest column have another number of values than the footer."""
    about = file.metadata.row_group(group)
    columns = [about.column(place) for place in range(about.num_columns)]
    if not columns:
        return
    smallest = min(columns, key=lambda column: column.total_compressed_size)
    starts = [place for place in (smallest.data_page_offset, smallest.dictionary_page_offset) if place]
    found = values_in_pages(opened, min(starts), smallest.total_compressed_size) if starts else None
    if found is not None and found != smallest.num_values:
        raise RowError(
            f"expected {about.num_rows:,} rows in row group {group}, by the footer, found pages of {found:,} "
            f"values of the column {smallest.path_in_schema}"
        )


def values_of_lists(file: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> int:
    """Return how many values the row group `group` has in the first column to read, if every column contains lists.

    Return 0 if a column of the file contains no lists. Such a column has one value per row, and `compare` checks the
    footer's number of rows with it. Otherwise the reader subtracts the values that it gets. If any remain, the
    footer's number of rows is too small. `columns` are the names to read; None: all.
    """
    leaves = [file.schema.column(place) for place in range(len(file.schema))]
    if not all(leaf.max_repetition_level for leaf in leaves):
        return 0
    read = [name for name in file.schema_arrow.names if columns is None or name in columns]
    firsts = [place for place, leaf in enumerate(leaves) if read and f"{leaf.path}.".startswith(f"{read[0]}.")]
    return int(file.metadata.row_group(group).column(firsts[0]).num_values) if firsts else 0


def slots(array: pa.Array) -> int:
    """Return how many values Parquet stores for an array, or for its first innermost column if it is nested.

    An empty or null list counts as one value.
    """
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


def count_rows(file: pq.ParquetFile, group: int, count: int) -> None:
    """Read the smallest column of the group, and raise `RowError` if it has another number of rows than `count`."""
    about = file.metadata.row_group(group)
    sizes = {about.column(i).path_in_schema: about.column(i).total_compressed_size for i in range(about.num_columns)}
    found = 0
    smallest = min(sizes, key=lambda name: sizes[name], default=None)
    if smallest:
        with translate_corruption(f"{count:,} rows in row group {group} of a Parquet file, by the footer"):
            found = sum(map(len, file.iter_batches(2**16, row_groups=[group], columns=[smallest])))
    if found != count:
        raise RowError(f"expected {count:,} rows in row group {group}, by the footer, found {found:,}")
