"""The order in which an attempt reads: the pending units, packed into blocks of about the same number of bytes.

A block is here a group of consecutive units: one record batch of the order file (Arrow IPC). Each block becomes one
read task, which contains only the file's path and the block's number. So a plan of ten million units stays small. Each
read task reads the file's footer, which has a few bytes per block.

The file has the columns of the manifest, and `settled`: the ranges `[start, stop, start, stop, ...]` of the unit's
rows that earlier attempts staged. This attempt skips these rows.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.state.manifest import UNITS
from overnight.tasks.storage.location import Location

TARGET_BLOCK_BYTES = 8 * 2**20
MINIMUM_BLOCKS = 16
MAXIMUM_BLOCKS = 4096
UNITS_AT_ONCE = 2**20

PENDING = UNITS.append(pa.field("settled", pa.list_(pa.int64())))


def pack(sizes: np.ndarray) -> np.ndarray:
    """Assign the units to blocks of about the same number of bytes, and return the number of each unit's block.

    The numbers are int64, ascending from 0. `sizes` has the bytes of each unit, in reading order.
    """
    if not len(sizes):
        return np.empty(0, np.int64)
    weights = np.maximum(np.asarray(sizes, np.float64), 1)
    total = weights.sum()
    count = int(np.clip(total / TARGET_BLOCK_BYTES, min(MINIMUM_BLOCKS, len(sizes)), MAXIMUM_BLOCKS))
    blocks, before = np.empty(len(weights), np.int64), 0.0
    for start in range(0, len(weights), UNITS_AT_ONCE):  # for ten million units each further array takes 80 MB
        some = weights[start : start + UNITS_AT_ONCE]
        ends = np.cumsum(np.append(before, some))[1:]
        blocks[start : start + len(some)] = (ends - some / 2) / total * count
        before = ends[-1]
    np.minimum(blocks, count - 1, out=blocks)
    np.cumsum(blocks[1:] != blocks[:-1], out=blocks[1:])
    blocks[0] = 0
    return blocks


def stream_order(
    location: Location,
    pending: Iterable[pa.Table],
    blocks: np.ndarray,
    sizes: np.ndarray,
    rows_left: np.ndarray | None,
    quarantined: int,
) -> None:
    """Write the order file `location`, one record batch per block. Memory holds one block.

    Args:
        pending: The units to read, in reading order, as tables of any length with schema `PENDING`.
        blocks: The number of each unit's block, from `pack`.
        sizes: The bytes of each unit.
        rows_left: The number of each unit's rows that are not settled; None if the rows of a unit are unknown.
        quarantined: The number of rows of the partition that earlier attempts quarantined.
    """
    bounds = np.append(np.zeros(min(len(blocks), 1), np.int64), np.flatnonzero(blocks[1:] != blocks[:-1]) + 1)
    rows = [None] * len(bounds) if rows_left is None else np.add.reduceat(rows_left, bounds, dtype=int).tolist()
    bytes_each = np.add.reduceat(sizes, bounds).tolist() if len(bounds) else []
    about = {"blocks": json.dumps(list(zip(rows, bytes_each, strict=True))), "quarantined": str(quarantined)}
    schema, options = PENDING.with_metadata(about), pa.ipc.IpcWriteOptions(compression="zstd")
    with location.writing() as file, pa.ipc.new_file(file, schema, options=options) as writer:
        for block in _cut(iter(pending), np.diff([*bounds, len(blocks)]).tolist()):
            writer.write_table(block.combine_chunks().cast(schema))


def _cut(tables: Iterator[pa.Table], lengths: Iterable[int]) -> Iterator[pa.Table]:
    """Yield tables of these lengths from tables of any length."""
    waiting = PENDING.empty_table()
    for length in lengths:
        while len(waiting) < length:
            waiting = pa.concat_tables([waiting, next(tables)])
        yield waiting[:length]
        waiting = waiting[length:]


def rows_in(ranges: pa.Array) -> np.ndarray:
    """Return the number of rows (int64) in the ranges of each unit.

    Each value of `ranges` has the ranges of one unit: `[start, stop, start, stop, ...]`.
    """
    bounds, units = pc.list_flatten(ranges).to_numpy(), pc.list_parent_indices(ranges).to_numpy()
    found = np.zeros(len(ranges), np.int64)
    np.add.at(found, units[::2], bounds[1::2] - bounds[::2])
    return found


def read_summaries(location: Location) -> list[tuple[int | None, int]]:
    """Return the number of rows and the bytes of each block of the order file; None for an unknown number of rows."""
    return [(rows, size) for rows, size in json.loads(_about(location)[b"blocks"])]


def read_quarantined(location: Location) -> int:
    """Return how many rows of the partition earlier attempts quarantined, from the order file `location`."""
    return int(_about(location)[b"quarantined"])


def read_block(location: Location, block: int) -> pa.Table:
    """Return the units of the block number `block` of the order file, as a table with schema `PENDING`."""
    with location.open() as file:
        return pa.Table.from_batches([pa.ipc.open_file(file).get_batch(block)])


def read_order(location: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """Return all units of the order file in reading order, with all `columns` or only the named ones."""
    fields = [PENDING.get_field_index(name) for name in columns] if columns else None
    with location.open() as file:
        return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields)).read_all()


def read_places(location: Location, places: np.ndarray) -> pa.Table:
    """Return the units at these ascending places (from 0) of the reading order, as a table with schema `PENDING`.

    Besides them, memory holds one block at a time.
    """
    found, first = [PENDING.empty_table()], 0
    with location.open() as file:
        order = pa.ipc.open_file(file)
        for number in range(order.num_record_batches):
            batch = order.get_batch(number)
            low, high = np.searchsorted(places, [first, first + len(batch)])
            if low < high:
                found.append(pa.Table.from_batches([batch.take(pa.array(places[low:high] - first))]).cast(PENDING))
            first += len(batch)
    return pa.concat_tables(found)


def _about(location: Location) -> dict[bytes, bytes]:
    with location.open() as file:
        return dict(pa.ipc.open_file(file).schema.metadata)
