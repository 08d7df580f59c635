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
    """Raise `RowError` if the footer lists too few or too many values of a column for `count` rows in group `group`.

    A column has one value per row. Only a column of lists may have more. At most `COLUMNS_COMPARED` columns are
    compared, lists last.
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
    """Raise `RowError` if the pages of a row group's smallest column have more or fewer values than the footer lists.

    `opened` is the file that `file` reads, and `group` is the group's index. Pages without readable headers raise
    nothing.
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
            f"expected {about.num_rows:,} rows in row group {group}, by the footer, found pages of {found:,} "
            f"values of the column {smallest.path_in_schema}"
        )


def values_of_lists(file: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> int:
    """Return how many values the footer lists for the first column to read, if every column of the file contains lists.

    The caller subtracts the values that it reads. If any remain at the end, the footer's number of rows is too small.
    Return 0 if a column contains no lists: it has one value per row, by which `compare` checks the number of rows.

    Args:
        group: The index of the row group.
        columns: The names of the columns to read; None: all.
    """
    leaves = [file.schema.column(place) for place in range(len(file.schema))]
    if not all(leaf.max_repetition_level for leaf in leaves):
        return 0
    read = [name for name in file.schema_arrow.names if columns is None or name in columns]
    firsts = [place for place, leaf in enumerate(leaves) if read and f"{leaf.path}.".startswith(f"{read[0]}.")]
    return int(file.metadata.row_group(group).column(firsts[0]).num_values) if firsts else 0


def slots(array: pa.Array) -> int:
    """Return how many values Parquet stores for an array; if it is nested, for the first of its innermost columns.

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
    """Read the smallest column of row group `group`. Raise `RowError` if it has another number of rows than `count`."""
    about = file.metadata.row_group(group)
    sizes = {about.column(i).path_in_schema: about.column(i).total_compressed_size for i in range(about.num_columns)}
    found = 0
    smallest = min(sizes, key=lambda name: sizes[name], default=None)
    if smallest:
        with translate_corruption(f"{count:,} rows in row group {group} of a Parquet file, by the footer"):
            found = sum(map(len, file.iter_batches(2**16, row_groups=[group], columns=[smallest])))
    if found != count:
        raise RowError(f"expected {count:,} rows in row group {group}, by the footer, found {found:,}")
