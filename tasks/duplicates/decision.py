"""A decision: the Parquet file of the duplicates that a `deduplicate` found. Every attempt and worker reads it.

It has schema `PLACES`. First come the duplicates, then the rows that failed while their keys were made, with `FAILED`
as their `place`, both in manifest order. Row groups are small, so a worker holds only those of its own units.
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

    All tables have schema `PLACES`. `duplicates` are in manifest order, each row once; `failed` are in any order.
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
    total = 0
    for name in filter(str.isdecimal, decisions.names()):  # not a file that a dead process began
        with (decisions / name).open() as file:
            total += int(pq.read_metadata(file).metadata[COUNT])
    return total


def judged(
    location: Location, units: np.ndarray, rows: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each output row is a duplicate, and whether it failed, by the decision at `location`.

    `units`, `rows` and `places` identify each row. Of a source row that failed, only the first output row is True.
    """
    duplicates, failures = np.zeros(len(units), bool), np.zeros(len(units), bool)
    if not len(units):
        return duplicates, failures
    first, last = int(units.min()), int(units.max())
    heads = np.flatnonzero(places == 0)
    failed_places = np.full(len(heads), FAILED)
    for number, (low, high) in enumerate(_bounds(location)):
        if low <= last and high >= first:
            decision = between(_group(location, number), first, last)
            duplicates |= found_in(decision, units, rows, places)
            failures[heads] |= found_in(decision, units[heads], rows[heads], failed_places)
    return duplicates, failures


@lru_cache(maxsize=8)
def _bounds(location: Location) -> list[tuple[int, int]]:
    """Return the first and the last unit of each row group."""
    with location.open() as file:
        footer = pq.read_metadata(file)
    bounds = []
    for number in range(footer.num_row_groups):
        statistics = footer.row_group(number).column(0).statistics
        if statistics is None or not statistics.has_min_max:  # the group has no rows
            bounds.append((0, -1))
        else:
            bounds.append((statistics.min, statistics.max))
    return bounds


@lru_cache(maxsize=GROUPS_HELD)
def _group(location: Location, number: int) -> pa.Table:
    with location.open() as file:
        return pq.ParquetFile(file).read_row_group(number)
