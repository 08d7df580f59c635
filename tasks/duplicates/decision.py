"""A decision: the Parquet file of the duplicates that a `deduplicate` found. Every attempt and worker reads it.

It has schema `PLACES`. First come the duplicates, then the rows that failed while their keys were made, both in
manifest order. A failed row has `FAILED` as its `place`. Row groups are small, so a worker holds only the groups that
contain its own units.
"""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.duplicates.places import FAILED, PLACES, between, found_in, in_order
from overnight.tasks.storage.location import Location

COUNT = b"duplicates"
ROWS_A_GROUP = 2**16
GROUPS_HELD = 64  # in the memory of a process, which take 84 MB at most


def write(location: Location, duplicates: Iterable[pa.Table], failed: pa.Table) -> int:
    """Write the file of a decision, whole or not at all, and return its number of duplicates.

    Args:
        duplicates: The duplicates, as tables with schema `PLACES` in manifest order. Each row occurs once.
        failed: The rows whose keys could not be made, with schema `PLACES`, in any order.
    """
    count = 0
    with location.writing() as file, pq.ParquetWriter(file, PLACES, compression="zstd") as writer:
        for table in duplicates:
            count += len(table)
            writer.write_table(table.cast(PLACES), row_group_size=ROWS_A_GROUP)
        writer.write_table(in_order(failed.cast(PLACES)), row_group_size=ROWS_A_GROUP)
        writer.add_key_value_metadata({COUNT: str(count).encode()})
    return count


def count_all(decisions: Location) -> int:
    """Return the number of duplicates in all files of decisions in a directory; 0 if the directory does not exist."""
    found = 0
    for name in filter(str.isdecimal, decisions.names()):  # not a file that a dead process began
        with (decisions / name).open() as file:
            found += int(pq.read_metadata(file).metadata[COUNT])
    return found


def judged(
    location: Location, units: np.ndarray, rows: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays of bool with one value per row: whether it is a duplicate, and whether it failed.

    `location` is the file of the decision. `units`, `rows` and `places` identify each output row: its unit, its source
    row, and its place among that row's output rows. A source row failed if its keys could not be made; only the first
    of its output rows is then True.
    """
    gone, failed = np.zeros(len(units), bool), np.zeros(len(units), bool)
    if not len(units):
        return gone, failed
    first, last = int(units.min()), int(units.max())
    heads = np.flatnonzero(places == 0)
    for number, (low, high) in enumerate(_bounds(location)):
        if low <= last and high >= first:
            near = between(_group(location, number), first, last)
            gone |= found_in(near, units, rows, places)
            failed[heads] |= found_in(near, units[heads], rows[heads], np.full(len(heads), FAILED))
    return gone, failed


@lru_cache(maxsize=8)
def _bounds(location: Location) -> list[tuple[int, int]]:
    """Return the first and the last unit of each row group."""
    with location.open() as file:
        footer = pq.read_metadata(file)
    groups = [footer.row_group(number).column(0).statistics for number in range(footer.num_row_groups)]
    return [(found.min, found.max) if found and found.has_min_max else (0, -1) for found in groups]


@lru_cache(maxsize=GROUPS_HELD)
def _group(location: Location, number: int) -> pa.Table:
    with location.open() as file:
        return pq.ParquetFile(file).read_row_group(number)
